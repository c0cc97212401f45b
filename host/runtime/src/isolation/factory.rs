//! The engine's factory and its sessions, as the host has them.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use contexture_engine_api::protocol::{Call, Carrier, Create, Open, RemoteEngine, read, write};
use contexture_engine_api::{
    ContextEngine, EngineError, EngineFactory, FactoryRequest, HostServices, MessageView,
    OpenRequest, StoreCommand,
};

use super::Isolated;
use super::process::Process;
use super::sent::Sent;
use contexture_base::lock;

/// Opens sessions in the engine's process, and has the factory made there where a new process needs one.
pub(crate) struct IsolatedFactory {
    engine: Arc<Isolated>,
    create: Create,
}

impl IsolatedFactory {
    pub(crate) fn new(engine: Arc<Isolated>, request: &FactoryRequest<'_>) -> Self {
        Self {
            engine,
            create: Create::of(request),
        }
    }

    fn process(&self) -> Result<Arc<Process>, EngineError> {
        let process = self.engine.process().map_err(EngineError::Gone)?;
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
            connection: Mutex::new((connection, Sent::default())),
            services: Arc::clone(&services),
            number,
        };
        let open = write(&(number, Open::of(request)))?;
        let call = Call::new("open", &open, &[]);
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
        let running = lock(&self.engine.running).take();
        if let Some(process) = running.filter(|process| !process.has_ended()) {
            // It may have something to write at its end, and has so long for it.
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

/// One session's engine, over its connection.
struct IsolatedSession {
    process: Arc<Process>,
    connection: Mutex<(UnixStream, Sent)>,
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
