//! One child process: started, spoken to over a socket, ended.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use contexture_engine_api::protocol::{Call, Frame, read, serve_services, write};
use contexture_engine_api::{EngineDescription, EngineError, HostServices};
use tempfile::TempDir;

use super::Launch;
use crate::HOST;
use contexture_base::lock;

type Services = Arc<Mutex<HashMap<u64, Arc<dyn HostServices>>>>;

/// How long a process that closed its socket has to end, so that it can be said how.
const ENDS: Duration = Duration::from_secs(1);

/// A child process that runs one engine.
pub(crate) struct Process {
    pub(crate) description: EngineDescription,
    child: Mutex<Child>,
    /// Closed, it ends the process.
    control: UnixStream,
    socket: PathBuf,
    /// The socket's.
    _folder: TempDir,
    memory: Option<u64>,
    pub(crate) deadline: Duration,
    /// What the sessions are lent, by their numbers.
    services: Services,
    last_session: AtomicU64,
    /// Whether the factory was made in it.
    pub(crate) has_factory: Mutex<bool>,
    ended: AtomicBool,
    /// Why it was ended, where the host did that.
    killed: OnceLock<&'static str>,
}

impl Process {
    /// Starts the process, and has it load the library.
    ///
    /// # Errors
    /// What the system said, or the process; a library that does not return from being loaded.
    pub(crate) fn start(launch: &Launch) -> Result<Self, String> {
        let cannot = |error: io::Error| format!("{}: {error}", launch.program.display());
        let folder = tempfile::tempdir().map_err(cannot)?;
        let socket = folder.path().join("engine");
        let listener = UnixListener::bind(&socket).map_err(cannot)?;
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
                "{}: no copy to load: {error}",
                launch.library.path.display()
            )
        };
        let mut child = child.map_err(no_copy)?.map_err(cannot)?;
        match handshake(&socket, launch.deadline) {
            Ok((control, description)) if description.name == launch.engine => {
                let services = Services::default();
                let process = Self {
                    description,
                    child: Mutex::new(child),
                    control,
                    socket,
                    _folder: folder,
                    memory: launch.memory,
                    deadline: launch.deadline,
                    services,
                    last_session: AtomicU64::new(0),
                    has_factory: Mutex::new(false),
                    ended: AtomicBool::new(false),
                    killed: OnceLock::new(),
                };
                process.serve_beside().map_err(cannot)?;
                Ok(process)
            }
            Ok((_, description)) => {
                end(&mut child);
                Err(format!(
                    "{} calls its engine `{}`, and its plugin.yaml says `{}`: make the two the same",
                    launch.library.path.display(),
                    description.name,
                    launch.engine
                ))
            }
            Err(EngineError::Gone(_)) => {
                let how = how_it_ended(&mut child, launch.memory, ENDS);
                end(&mut child);
                Err(match how {
                    Some(how) => format!("its process {how} while the library was loaded"),
                    None => format!(
                        "the library {} did not return from being loaded within {} ms; its process was ended",
                        launch.library.path.display(),
                        launch.deadline.as_millis()
                    ),
                })
            }
            Err(error) => {
                end(&mut child);
                Err(error.to_string())
            }
        }
    }

    /// Serves what the engine's own threads ask, until the process ends.
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

    /// A connection to it.
    pub(crate) fn connect(&self) -> Result<UnixStream, EngineError> {
        UnixStream::connect(&self.socket).map_err(|_| self.gone())
    }

    /// Makes a call over a connection, and serves what the engine asks meanwhile.
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
                        "a frame that is no answer".to_owned(),
                    ));
                }
            }
        }
    }

    /// Makes a call on a connection of its own.
    pub(crate) fn ask(&self, method: &str, argument: &str) -> Result<String, EngineError> {
        self.exchange(&mut self.connect()?, Call::new(method, argument, &[]), None)
    }

    /// A number for a new session, with what it is lent.
    pub(crate) fn lend(&self, services: Arc<dyn HostServices>) -> u64 {
        let number = self.last_session.fetch_add(1, Ordering::Relaxed);
        lock(&self.services).insert(number, services);
        number
    }

    pub(crate) fn take_services(&self, number: u64) {
        lock(&self.services).remove(&number);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) || matches!(lock(&self.child).try_wait(), Ok(Some(_)))
    }

    /// Ends it now.
    pub(crate) fn kill(&self, why: &'static str) {
        let _ = self.killed.set(why);
        self.ended.store(true, Ordering::Release);
        end(&mut lock(&self.child));
    }

    /// Why a call of it has no answer.
    fn gone(&self) -> EngineError {
        self.ended.store(true, Ordering::Release);
        if let Some(why) = self.killed.get() {
            return EngineError::Gone((*why).to_owned());
        }
        let how = how_it_ended(&mut lock(&self.child), self.memory, ENDS);
        let how = how.unwrap_or_else(|| "closed its connection".to_owned());
        EngineError::Gone(format!("its process {how}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.control.shutdown(Shutdown::Both);
        let child = &mut lock(&self.child);
        if how_it_ended(child, None, ENDS).is_none() {
            end(child);
        }
    }
}

/// The first connection: the library is loaded, and says what it is.
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
            "the first frame is no answer".to_owned(),
        ));
    };
    control.set_read_timeout(None).map_err(gone)?;
    Ok((control, read(&description?)?))
}

fn end(child: &mut Child) {
    // It may have ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// How a process ended, for a person; none where it has not within `patience`.
fn how_it_ended(child: &mut Child, memory: Option<u64>, patience: Duration) -> Option<String> {
    let began = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(match (status.signal(), status.code()) {
                // What allocators do where there is no memory.
                (Some(6), _) => match memory {
                    Some(most) => format!(
                        "aborted (signal 6); it may have reached its limit of memory, {} MB \
                         (`context.supervision.memory_mb`)",
                        most >> 20
                    ),
                    None => "aborted (signal 6)".to_owned(),
                },
                (Some(signal), _) => format!("was ended by signal {signal}"),
                (None, code) => format!("exited with code {}", code.unwrap_or(0)),
            });
        }
        if began.elapsed() >= patience {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
