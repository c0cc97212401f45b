//! One child process that runs an engine: how it is started, called and ended.
//!
//! The host binds a socket in a private folder and passes it to the child as standard output. The
//! child accepts any number of connections. The first one is the control connection: it loads the
//! library, carries what the engine's own threads ask of the host, and ends the child when it is
//! closed. Each session has another connection, over which the host sends calls and answers what
//! the engine asks during a call.
//!
//! Read [`Process::start`] first, then [`Process::exchange`]. When a connection breaks, the child's
//! exit status tells why, and the error [`EngineError::Gone`] says it in words. Which sessions use
//! a process, and when a new one is started, is left to the parent module.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contexture_engine_api::protocol::{Call, Frame, read, serve_services, write};
use contexture_engine_api::{EngineDescription, EngineError, HostServices};
use tempfile::TempDir;

use super::Launch;
use crate::HOST;
use crate::child::EngineChild;
use contexture_base::lock;

/// What the host lends to the sessions, by their numbers.
type Services = Arc<Mutex<HashMap<u64, Arc<dyn HostServices>>>>;

/// How long to wait for the exit status of a process that has closed its socket, so that an error
/// can say how it ended.
const ENDS: Duration = Duration::from_secs(1);

/// A child process that runs one engine. Dropping it asks the child to end, and kills it if it does
/// not.
pub(crate) struct Process {
    pub(crate) description: EngineDescription,
    child: EngineChild,
    /// The control connection. The child ends when it is closed, so it also ends if the host
    /// crashes.
    control: UnixStream,
    socket: PathBuf,
    /// The private folder of the socket, deleted with this value.
    _folder: TempDir,
    pub(crate) deadline: Duration,
    services: Services,
    last_session: AtomicU64,
    /// Whether the engine's factory was created in this process.
    pub(crate) has_factory: Mutex<bool>,
}

impl Process {
    /// Starts the process and has it load the library. Returns after the engine has described
    /// itself.
    ///
    /// # Errors
    /// Returns a message if the program cannot be started, the library does not load within the
    /// deadline, or its engine has another name than the manifest says.
    pub(crate) fn start(launch: &Launch) -> Result<Self, String> {
        let cannot = |error: io::Error| format!("{}: {error}", launch.program.display());
        let folder = tempfile::tempdir().map_err(cannot)?;
        let socket = folder.path().join("engine");
        let listener = UnixListener::bind(&socket).map_err(cannot)?;
        // Without a limit, the argument is 0.
        let child = launch.library.for_child(|stdin, copy| {
            Command::new(&launch.program)
                .arg(&launch.library.path)
                .arg(copy)
                .arg(launch.memory.unwrap_or(0).to_string())
                .stdin(stdin)
                .stdout(Stdio::from(OwnedFd::from(listener)))
                .spawn()
        });
        let no_copy = |error| {
            format!(
                "{} cannot be copied for loading: {error}",
                launch.library.path.display()
            )
        };
        let child = child.map_err(no_copy)?.map_err(cannot)?;
        let child = EngineChild::of(child, launch.memory);
        match handshake(&socket, launch.deadline) {
            Ok((control, description)) if description.name == launch.engine => {
                let services = Services::default();
                let process = Self {
                    description,
                    child,
                    control,
                    socket,
                    _folder: folder,
                    deadline: launch.deadline,
                    services,
                    last_session: AtomicU64::new(0),
                    has_factory: Mutex::new(false),
                };
                process.serve_beside().map_err(cannot)?;
                Ok(process)
            }
            Ok((_, description)) => {
                child.end_within(Duration::ZERO);
                Err(format!(
                    "{} calls its engine `{}`, but its plugin.yaml says `{}`: make the two the same",
                    launch.library.path.display(),
                    description.name,
                    launch.engine
                ))
            }
            // Either the process ended, or the read timed out. Its exit status tells which.
            Err(EngineError::Gone(_)) => {
                let why = child.why_lost(ENDS);
                child.end_within(Duration::ZERO);
                Err(match why {
                    Some(why) => format!("{why} while the library was loaded"),
                    None => format!(
                        "loading the library {} did not end within {} ms; its process was killed",
                        launch.library.path.display(),
                        launch.deadline.as_millis()
                    ),
                })
            }
            Err(error) => {
                child.end_within(Duration::ZERO);
                Err(error.to_string())
            }
        }
    }

    /// Starts a thread that answers what the engine's own threads ask outside of any call, until
    /// the process ends.
    ///
    /// # Errors
    /// Returns the error of the operating system if the thread cannot be started.
    fn serve_beside(&self) -> io::Result<()> {
        let mut control = self.control.try_clone()?;
        let services = Arc::clone(&self.services);
        let serve = move || {
            while let Ok(Frame::Beside(session, call)) = Frame::receive(&mut control) {
                let lent = lock(&services).get(&session).cloned();
                let closed = || EngineError::Gone("the session is closed".to_owned());
                let answer = lent
                    .ok_or_else(closed)
                    .and_then(|lent| serve_services(lent.as_ref(), &call.method, &call.argument));
                if Frame::Answer(answer).send(&mut control).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("engine-process".to_owned())
            .spawn(serve)
            .map(drop)
    }

    /// Opens another connection to the process. If that fails, the process has ended, and the error
    /// says how.
    pub(crate) fn connect(&self) -> Result<UnixStream, EngineError> {
        UnixStream::connect(&self.socket).map_err(|_| self.gone())
    }

    /// Makes a call over a connection and waits for its result. While it waits, it answers what the
    /// engine asks of the host. `services` is `None` for calls that belong to no session, in which
    /// the engine may ask nothing.
    ///
    /// # Errors
    /// Returns the engine's own error, [`EngineError::Gone`] if the process has ended, or
    /// [`EngineError::Protocol`] if an unexpected frame arrives.
    pub(crate) fn exchange(
        &self,
        connection: &mut UnixStream,
        call: Call,
        services: Option<&dyn HostServices>,
    ) -> Result<String, EngineError> {
        let lost = |error| match error {
            EngineError::Gone(_) => self.gone(),
            error => error,
        };
        Frame::Call(call).send(connection).map_err(lost)?;
        loop {
            match Frame::receive(connection).map_err(lost)? {
                Frame::Answer(answer) => return answer,
                Frame::Call(asked) => {
                    let none = || EngineError::Protocol("there are no services here".to_owned());
                    let answer = services.ok_or_else(none).and_then(|services| {
                        serve_services(services, &asked.method, &asked.argument)
                    });
                    Frame::Answer(answer).send(connection).map_err(lost)?;
                }
                _ => {
                    return Err(EngineError::Protocol(
                        "a frame that is not an answer".to_owned(),
                    ));
                }
            }
        }
    }

    /// Makes a call that belongs to no session, on a new connection that is closed afterwards.
    pub(crate) fn ask(&self, method: &str, argument: &str) -> Result<String, EngineError> {
        self.exchange(&mut self.connect()?, Call::new(method, argument, &[]), None)
    }

    /// Registers what the host lends to a new session and returns the session's number. The
    /// engine's own threads use the number to say which session they ask for.
    pub(crate) fn lend(&self, services: Arc<dyn HostServices>) -> u64 {
        let number = self.last_session.fetch_add(1, Ordering::Relaxed);
        lock(&self.services).insert(number, services);
        number
    }

    /// Ends what was lent to a session. Later requests of the engine's threads for it get an error.
    pub(crate) fn take_services(&self, number: u64) {
        lock(&self.services).remove(&number);
    }

    /// Whether the process has ended, by itself or because the host killed it.
    pub(crate) fn has_ended(&self) -> bool {
        self.child.has_ended()
    }

    /// Kills the process, see [`EngineChild::kill`].
    pub(crate) fn kill(&self, why: &str) {
        self.child.kill(why);
    }

    /// Returns the error for a call that has lost its connection.
    fn gone(&self) -> EngineError {
        let why = self.child.why_lost(ENDS);
        EngineError::Gone(why.unwrap_or_else(|| "its process closed its connection".to_owned()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.control.shutdown(Shutdown::Both);
        self.child.end_within(ENDS);
    }
}

/// Opens the control connection, has the library loaded, and reads the engine's description.
///
/// # Errors
/// Returns [`EngineError::Gone`] if the process ends or does not answer within `deadline`, and the
/// process's own error if the library does not load.
fn handshake(
    socket: &std::path::Path,
    deadline: Duration,
) -> Result<(UnixStream, EngineDescription), EngineError> {
    let gone = |error: io::Error| EngineError::Gone(error.to_string());
    let mut control = UnixStream::connect(socket).map_err(gone)?;
    control.set_read_timeout(Some(deadline)).map_err(gone)?;
    Frame::Call(Call::new("load", &write(&*HOST)?, &[])).send(&mut control)?;
    let Frame::Answer(description) = Frame::receive(&mut control)? else {
        return Err(EngineError::Protocol(
            "the first frame is not an answer".to_owned(),
        ));
    };
    // Only the load has a deadline here. The connection then stays idle for as long as the engine
    // asks nothing.
    control.set_read_timeout(None).map_err(gone)?;
    Ok((control, read(&description?)?))
}
