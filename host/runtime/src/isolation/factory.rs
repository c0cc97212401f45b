//! The host's side of an isolated engine: its factory and its sessions.
//!
//! The rest of the host uses an isolated engine through the same traits as one in this process.
//! [`IsolatedFactory`] implements [`EngineFactory`] and passes the requests on to the engine's
//! process. A session is a [`RemoteEngine`] over [`IsolatedSession`], which carries each method of
//! the trait as one call over the session's own connection.
//!
//! Starting, killing and reading from the process is left to [`Process`]. A call that loses its
//! process returns [`EngineError::Gone`], after which the host opens the session in a new process.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use contexture_engine_api::protocol::{Call, Carrier, Create, Open, RemoteEngine, read, write};
use contexture_engine_api::{
    ContextEngine, EngineError, EngineFactory, FactoryRequest, HostServices, MessageView,
    OpenRequest, StoreCommand,
};

use super::Isolated;
use super::process::Process;
use super::sent::SentWindow;
use contexture_base::lock;

/// Opens sessions in the engine's process. If the process was replaced since the last request, the
/// factory is created in the new one first.
pub(crate) struct IsolatedFactory {
    engine: Arc<Isolated>,
    create: Create,
}

impl IsolatedFactory {
    /// Keeps the request, so that the factory can be created again in a later process. Nothing is
    /// sent yet.
    pub(crate) fn new(engine: Arc<Isolated>, request: &FactoryRequest<'_>) -> Self {
        Self {
            engine,
            create: Create::of(request),
        }
    }

    /// Returns a running process in which the factory exists.
    fn process(&self) -> Result<Arc<Process>, EngineError> {
        let process = self.engine.process().map_err(EngineError::Gone)?;
        // Locked during the request, so that two sessions do not create two factories, which would
        // open the same files.
        let mut has_factory = lock(&process.has_factory);
        if !*has_factory {
            process.ask("create", &write(&self.create)?)?;
            *has_factory = true;
        }
        drop(has_factory);
        Ok(process)
    }
}

impl EngineFactory for IsolatedFactory {
    fn create(_request: &FactoryRequest<'_>) -> Result<Self, EngineError> {
        Err(EngineError::Unsupported(
            "making an isolated factory without its engine".to_owned(),
        ))
    }

    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        let process = self.process()?;
        let mut connection = process.connect()?;
        let services = Arc::clone(request.services.host());
        let number = process.lend(Arc::clone(&services));
        let session = |connection| IsolatedSession {
            process: Arc::clone(&process),
            connection: Mutex::new((connection, SentWindow::default())),
            services: Arc::clone(&services),
            number,
        };
        let open = write(&(number, Open::of(request)))?;
        let call = Call::new("open", &open, &[]);
        // The session is built before the result is checked: if opening failed, dropping it closes
        // the engine's side and takes the services back.
        let opened = process.exchange(&mut connection, call, Some(services.as_ref()));
        let session = session(connection);
        opened?;
        Ok(Box::new(RemoteEngine(session)))
    }

    fn manage(&self, command: &StoreCommand) -> Result<serde_json::Value, EngineError> {
        read(&self.process()?.ask("manage", &write(command)?)?)
    }
}

impl Drop for IsolatedFactory {
    fn drop(&mut self) {
        // Taken out, so that a session that is opened after this starts a new process.
        let running = lock(&self.engine.running).take();
        if let Some(process) = running.filter(|process| !process.has_ended()) {
            // The engine may write its state when it ends, so it gets time to answer.
            let connection = process.connect();
            let ended = connection.and_then(|mut connection| {
                let _ = connection.set_read_timeout(Some(process.deadline));
                process.exchange(&mut connection, Call::new("end", "null", &[]), None)
            });
            if ended.is_err() {
                process.kill("it did not end in time");
            }
        }
    }
}

/// One session of an isolated engine, with a connection of its own. The lock allows one call at a
/// time.
struct IsolatedSession {
    process: Arc<Process>,
    connection: Mutex<(UnixStream, SentWindow)>,
    services: Arc<dyn HostServices>,
    number: u64,
}

impl Carrier for IsolatedSession {
    fn call(
        &self,
        method: &str,
        argument: &str,
        messages: &[MessageView<'_>],
    ) -> Result<String, EngineError> {
        let (connection, sent) = &mut *lock(&self.connection);
        let call = sent.call(method, argument, messages);
        let services = Some(self.services.as_ref());
        self.process.exchange(connection, call, services)
    }
}

impl Drop for IsolatedSession {
    fn drop(&mut self) {
        if !self.process.has_ended() {
            let (connection, _) = &mut *lock(&self.connection);
            // Without a timeout, a hanging engine would block the thread that drops the session
            // forever.
            let _ = connection.set_read_timeout(Some(self.process.deadline));
            let close = Call::new("close", "null", &[]);
            if self
                .process
                .exchange(connection, close, Some(self.services.as_ref()))
                .is_err()
            {
                self.process.kill("a session of it did not end in time");
            }
        }
        self.process.take_services(self.number);
    }
}
