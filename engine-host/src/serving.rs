//! The connections: what the host asks, and who answers.

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

use crate::services::{Control, SessionServices};

/// How long a host may take from starting this process to connecting, which is the next that it does.
const CONNECTS: Duration = Duration::from_secs(20);

type Answer = std::result::Result<String, EngineError>;

/// What the connections share.
struct Shared {
    plugin: Plugin,
    factory: Mutex<Option<Arc<dyn EngineFactory>>>,
    control: Arc<Control>,
}

/// Serves a host until it closes the control connection.
///
/// # Errors
/// Arguments that a host does not give; a socket that cannot be used.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let (Some(library), Some(copy), Some(memory)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err(Error::other(
            "it is started by Contexture, where `context.isolation` is `process`",
        ));
    };
    let listener = UnixListener::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    // What an engine prints is for people.
    rustix::stdio::dup2_stdout(std::io::stderr())?;
    limit_memory(&memory)?;

    let mut host = first_connection(&listener)?;
    let Frame::Call(first) = receive(&mut host)? else {
        return Err(Error::other("the host began with no call"));
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
        factory: Mutex::default(),
        control: Arc::new(control),
    });
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.serve(connection));
        }
    });
    // Whatever an engine is at, it ends with its host.
    answers.pass_on();
    Ok(())
}

/// The host's control connection. A host that was killed before it connected never does.
fn first_connection(listener: &UnixListener) -> Result<UnixStream> {
    let until = Instant::now() + CONNECTS;
    listener.set_nonblocking(true)?;
    let host = loop {
        match listener.accept() {
            Ok((host, _)) => break host,
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    };
    listener.set_nonblocking(false)?;
    host.set_nonblocking(false)?;
    Ok(host)
}

/// Limits the address space, in bytes. What does not fit ends the process, and no other.
fn limit_memory(most: &OsString) -> Result<()> {
    let most: u64 = (most.to_str().and_then(|most| most.parse().ok()))
        .ok_or_else(|| Error::other("the limit of memory is no number"))?;
    if most > 0 {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(Resource::As, limit)?;
    }
    Ok(())
}

/// The window that the last call about one was about.
#[derive(Default)]
struct Window(HashMap<MessageId, OwnedMessage>);

impl Window {
    /// The messages of these ids, some of which are new.
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
    /// Answers the calls of one connection until it is closed.
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
                // Also where no session came of it.
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
