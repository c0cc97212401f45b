//! Answering the host.
//!
//! [`run`] accepts the control connection, loads the plugin and then serves further connections,
//! each on a thread of its own. [`Shared::serve`] answers the calls of one connection: the
//! factory's if no session is open on it, and the engine's if one is. When the host closes the
//! control connection, [`run`] returns and the process ends, whatever an engine is doing at that
//! moment.
//!
//! A window can be large, so the host does not send all of it with each call. [`Window`] keeps the
//! messages of the last call and adds the new ones. The protocol itself is in
//! `contexture_engine_api::protocol`.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use contexture_engine_api::protocol::{Call, Create, Frame, Open, read, serve, write};
use contexture_engine_api::{
    ContextEngine, EngineError, EngineFactory, HostInfo, MessageId, MessageView, OwnedMessage,
    Plugin, StoreCommand, with_views,
};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::services::{Answer, Control, SessionServices};

/// How long to wait for the host to connect. Connecting is the first thing that it does after it
/// started this process.
const CONNECTS: Duration = Duration::from_secs(20);

/// The state that all connections of the process share.
struct Shared {
    plugin: Plugin,
    factory: Mutex<Option<Arc<dyn EngineFactory>>>,
    control: Arc<Control>,
}

/// Serves a host until it closes the control connection.
///
/// # Errors
/// Returns an error if the arguments are not those that a host gives, or if the socket cannot be
/// used. If the plugin cannot be loaded, the host gets the reason as an answer instead.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let (Some(library), Some(copy), Some(memory)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err(Error::other(
            "Contexture starts this program if `context.isolation` is `process`",
        ));
    };
    let listener = UnixListener::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    // The socket took the place of standard output. Whatever an engine prints is for people, so it
    // goes to standard error.
    rustix::stdio::dup2_stdout(std::io::stderr())?;
    limit_memory(&memory)?;

    let mut host = first_connection(&listener)?;
    let Frame::Call(first) = receive(&mut host)? else {
        return Err(Error::other("the first frame of the host is not a call"));
    };
    let (library, copy) = (PathBuf::from(library), PathBuf::from(copy));
    let loaded = read::<HostInfo>(&first.argument)
        .map_err(|error| error.to_string())
        .and_then(|host| {
            Plugin::load_copy(&library, &copy, &host).map_err(|error| error.to_string())
        });
    let plugin = match loaded {
        Ok(plugin) => plugin,
        Err(reason) => return send(&mut host, Err(EngineError::Other(reason))),
    };
    send(&mut host, write(plugin.description()))?;
    let (control, mut answers) = Control::over(host)?;
    let shared = Arc::new(Shared {
        plugin,
        // The factory is made later, by a connection of its own.
        factory: Mutex::default(),
        control: Arc::new(control),
    });
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.serve(connection));
        }
    });
    // Wait here. When the host closes the connection, this returns and the process ends, even if an
    // engine is still at work.
    answers.pass_on();
    Ok(())
}

/// Accepts the control connection of the host. Fails after [`CONNECTS`], because a host that was
/// killed before it connected never will.
fn first_connection(listener: &UnixListener) -> Result<UnixStream> {
    let until = Instant::now() + CONNECTS;
    listener.set_nonblocking(true)?;
    let host = loop {
        match listener.accept() {
            Ok((host, _)) => break host,
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                // `accept` has no timeout of its own, so this polls.
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    };
    listener.set_nonblocking(false)?;
    host.set_nonblocking(false)?;
    Ok(host)
}

/// Limits the address space, in bytes. An engine that needs more ends this process and not the
/// host's.
fn limit_memory(most: &OsString) -> Result<()> {
    let most: u64 = (most.to_str().and_then(|most| most.parse().ok()))
        .ok_or_else(|| Error::other("the memory limit is not a number"))?;
    if most > 0 {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(Resource::As, limit)?;
    }
    Ok(())
}

/// The messages of the window in the last call about one. A host sends only what is new, and the
/// ids of the whole window.
#[derive(Default)]
struct Window(HashMap<MessageId, OwnedMessage>);

impl Window {
    /// Adds the new messages and returns the window of these ids, in order. Messages that are not
    /// in it are dropped.
    fn after(
        &mut self,
        new: Vec<OwnedMessage>,
        ids: &[MessageId],
    ) -> std::result::Result<Vec<&OwnedMessage>, EngineError> {
        self.0
            .extend(new.into_iter().map(|message| (message.id, message)));
        let stand: HashSet<MessageId> = ids.iter().copied().collect();
        self.0.retain(|id, _| stand.contains(id));
        let never = |id| EngineError::Protocol(format!("the host never sent {id}"));
        (ids.iter())
            .map(|id| self.0.get(id).ok_or_else(|| never(id)))
            .collect()
    }
}

fn receive(from: &mut UnixStream) -> Result<Frame> {
    Frame::receive(from).map_err(Error::other)
}

fn send(to: &mut UnixStream, answer: Answer) -> Result<()> {
    Frame::Answer(answer).send(to).map_err(Error::other)
}

impl Shared {
    /// Answers the calls of one connection until it is closed. A session that was opened on it ends
    /// with it.
    fn serve(&self, mut host: UnixStream) {
        let mut session: Option<Box<dyn ContextEngine>> = None;
        let mut window = Window::default();
        while let Ok(Frame::Call(mut call)) = Frame::receive(&mut host) {
            let answer = match (&mut session, call.method.as_str()) {
                (None, "create") => self.create(&call),
                (None, "manage") => self.manage(&call),
                (None, "end") => self.end(),
                (None, "open") => self.open(&call, &host).map(|engine| {
                    session = Some(engine);
                    "null".to_owned()
                }),
                // Also accepted if no session was opened, so that a host need not know whether
                // opening worked.
                (_, "close") => {
                    session = None;
                    Ok("null".to_owned())
                }
                (None, _) => Err(EngineError::UnknownMethod(call.method)),
                (Some(engine), _) => {
                    let new = std::mem::take(&mut call.messages);
                    let run = |messages: &[MessageView<'_>]| {
                        serve(engine.as_mut(), &call.method, &call.argument, messages)
                    };
                    match &call.window {
                        None => with_views(&new, run),
                        Some(ids) => {
                            (window.after(new, ids)).and_then(|messages| with_views(&messages, run))
                        }
                    }
                }
            };
            if send(&mut host, answer).is_err() {
                return;
            }
        }
    }

    fn factory(&self) -> std::result::Result<Arc<dyn EngineFactory>, EngineError> {
        let factory = self.factory.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = || EngineError::Protocol("the factory was not made".to_owned());
        factory.clone().ok_or_else(missing)
    }

    fn create(&self, call: &Call) -> Answer {
        let create: Create = read(&call.argument)?;
        let made = self.plugin.create(&create.request())?;
        let mut factory = self.factory.lock().unwrap_or_else(PoisonError::into_inner);
        *factory = Some(Arc::from(made));
        Ok("null".to_owned())
    }

    fn manage(&self, call: &Call) -> Answer {
        let command: StoreCommand = read(&call.argument)?;
        write(&self.factory()?.manage(&command)?)
    }

    fn end(&self) -> Answer {
        // The factory is dropped here and not when the process ends, because nothing is dropped
        // then.
        let mut factory = self.factory.lock().unwrap_or_else(PoisonError::into_inner);
        drop(factory.take());
        Ok("null".to_owned())
    }

    fn open(
        &self,
        call: &Call,
        host: &UnixStream,
    ) -> std::result::Result<Box<dyn ContextEngine>, EngineError> {
        let (number, open): (u64, Open) = read(&call.argument)?;
        let control = Arc::clone(&self.control);
        let services = SessionServices::lend(number, host, control)?;
        self.factory()?.open(&open.request(services))
    }
}
