//! Engines that are programs: scripts in any language, started by the `command` of their
//! `plugin.yaml`.
//!
//! The host starts one process for each session and speaks JSON-RPC 2.0 with it, one message in a
//! line, over its standard input and output. `docs/engine-protocol.md` describes every message. The
//! methods, their arguments and the services are those of `contexture_engine_api::protocol`.
//!
//! A process has one job, so that an author needs no threads and no table of sessions: the host
//! makes one call at a time, and the process may call the host's services until it has answered.
//! Deadlines are left to [`supervision`](crate::supervision), which kills a process that misses one.
//! A process that says anything that is no message is killed as well, because nothing after it could
//! be trusted to be an answer.
//!
//! Read [`StdioProcess`] first. [`StdioFactory`] offers it to the rest of the host as an
//! [`EngineFactory`], and `messages` has the form of the lines.

mod messages;

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Once, OnceLock, Weak};
use std::time::{Duration, Instant};

use contexture_base::lock;
use contexture_engine_api::protocol::{
    Carrier, Create, Open, RemoteEngine, read, serve_services, takes_messages, write,
};
use contexture_engine_api::{
    API_VERSION, ContextEngine, EngineDescription, EngineError, EngineFactory, FactoryRequest,
    HostServices, MessageView, OpenRequest, StoreCommand, at_exit, printable,
};

use crate::HOST;
use crate::catalog::Manifest;
use crate::child::{EngineChild, limit_memory};
use crate::supervision::EngineProcess;
use messages::{Incoming, answer_line, call_line};

/// The longest line that a process may write, in bytes.
const LONGEST_LINE: u64 = 64 << 20;

/// How many lines are read ahead. A process that writes more has to wait until the host calls it.
const LINES_AHEAD: usize = 64;

/// How long a process may take to end after its standard input was closed.
const ENDS: Duration = Duration::from_secs(2);

/// How long to wait for the end of a process that has closed its standard output, so that an error
/// can say how it ended.
const CLOSED: Duration = Duration::from_millis(500);

/// How often the host looks whether a process that it waits for has ended. Its standard output may
/// stay open after its end, held by a process that it has started. An answer that was written before
/// the end is read within this time.
const LOOKS: Duration = Duration::from_millis(200);

/// The processes that have not been dropped. At the end of the host, a thread that waits for one of
/// them keeps it from being dropped.
static PROCESSES: Mutex<Vec<Weak<StdioProcess>>> = Mutex::new(Vec::new());

/// Ends the processes that are left when this program ends. One that is in a call is killed at once,
/// because nobody reads its answer.
extern "C" fn end_all() {
    let all: Vec<Arc<StdioProcess>> = lock(&PROCESSES).iter().filter_map(Weak::upgrade).collect();
    let (idle, busy): (Vec<_>, Vec<_>) = (all.iter()).partition(|process| process.close_input());
    for process in busy {
        process.end_because("the host ended".to_owned());
    }
    let until = Instant::now() + ENDS;
    for process in idle {
        process
            .child
            .end_within(until.saturating_duration_since(Instant::now()));
    }
}

/// How the processes of one engine are started.
#[derive(Debug, Clone)]
pub(crate) struct StdioLaunch {
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    /// The file that messages name, which is the script in most cases.
    file: PathBuf,
    /// The name that the manifest gives the engine. The process must report the same.
    engine: String,
    /// The most address space that a process may use, in bytes. `None` for no limit.
    memory: Option<u64>,
    /// The longest time that a process may take to describe its engine.
    deadline: Duration,
}

impl StdioLaunch {
    /// Prepares to start the command of a plugin, whose files were [verified](Manifest::verify).
    /// Returns `None` if the plugin is a library.
    ///
    /// # Errors
    /// Returns a message if the program is not found, or another user can write it.
    pub(crate) fn of(
        manifest: &Manifest,
        memory: Option<u64>,
        deadline: Duration,
    ) -> Result<Option<Self>, String> {
        let program = manifest.program().map_err(|problem| problem.to_string())?;
        Ok(program.map(|(program, arguments)| Self {
            program,
            arguments: arguments.to_vec(),
            folder: manifest.folder().to_owned(),
            file: manifest.folder().join(&manifest.library),
            engine: manifest.name.clone(),
            memory,
            deadline,
        }))
    }
}

/// A process that runs the engine of one session. Dropping it closes the process's standard input
/// and kills it if it does not end.
pub(crate) struct StdioProcess {
    description: OnceLock<EngineDescription>,
    child: EngineChild,
    /// The bytes since the last line feed that the process wrote.
    pending: Arc<AtomicU64>,
    /// Held during a call.
    pipe: Mutex<Pipe>,
}

/// The two directions of a process's standard streams.
struct Pipe {
    /// `None` once it was closed.
    input: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    /// The number of the last call.
    last_call: u64,
    /// The methods that the engine answered it does not have. They are not called again, because a
    /// call may hold the whole window.
    missing: HashSet<String>,
}

impl std::fmt::Debug for StdioProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StdioProcess")
            .field(&self.description().name)
            .finish()
    }
}

impl EngineProcess for StdioProcess {
    // There is never a second process behind this value, so one number is enough.
    fn current(&self) -> Option<u64> {
        (!self.has_ended()).then_some(0)
    }

    fn kill(&self) {
        self.end_late("did not return in time");
    }
}

impl StdioProcess {
    /// Starts a process and has it describe its engine.
    ///
    /// # Errors
    /// Returns a message if the program cannot be started, does not answer within the deadline, or its
    /// engine has another name than the manifest says.
    pub(crate) fn start(launch: &StdioLaunch) -> Result<Arc<Self>, String> {
        let file = launch.file.display();
        let program = launch.program.display();
        let cannot = |error: io::Error| match launch.program == launch.file {
            true => format!("{file} cannot be started: {error}"),
            false => format!("{file}: {program} cannot be started: {error}"),
        };
        let mut command = Command::new(&launch.program);
        command
            .args(&launch.arguments)
            .current_dir(&launch.folder)
            // Python would write into the folder, and a pin would no longer match.
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // A program may start others, which have to end with it.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(cannot)?;
        limit_memory(&child, launch.memory);
        let input = child.stdin.take();
        let (to, lines) = sync_channel(LINES_AHEAD);
        let pending = Arc::new(AtomicU64::new(0));
        let reader = child.stdout.take().map(|output| {
            std::thread::Builder::new()
                .name("engine-output".to_owned())
                .spawn({
                    let pending = Arc::clone(&pending);
                    move || read_lines(Counted { output, pending }, &to)
                })
        });
        let child = EngineChild::of(child, launch.memory);
        if let Some(Err(error)) = reader {
            child.end_within(Duration::ZERO);
            return Err(cannot(error));
        }
        let process = Arc::new(Self {
            description: OnceLock::new(),
            child,
            pending,
            pipe: Mutex::new(Pipe {
                input,
                lines,
                last_call: 0,
                missing: HashSet::new(),
            }),
        });
        process.register();
        let host = write(&*HOST).map_err(|error| error.to_string())?;
        let described = process.exchange("initialize", &host, None, None, Some(launch.deadline));
        let description = described
            .and_then(|answer| read::<EngineDescription>(&answer))
            .map_err(|error| format!("{file}: the engine did not describe itself: {error}"))
            .and_then(|description| {
                if description.name != launch.engine {
                    return Err(format!(
                        "{file} calls its engine `{}`, but its plugin.yaml says `{}`: make the two the same",
                        description.name, launch.engine
                    ));
                }
                match major(&description.api) {
                    "" => Ok(description),
                    own if own == major(API_VERSION) => Ok(description),
                    _ => Err(format!(
                        "{file}: the engine is for version {} of the interface, and this host has {API_VERSION}: \
                         use another version of one of them",
                        printable(&description.api, 80)
                    )),
                }
            });
        match description {
            Ok(description) => {
                let _ = process.description.set(description);
                Ok(process)
            }
            Err(why) => {
                // It has nothing to finish, and the load has a deadline.
                process.child.end_within(Duration::ZERO);
                Err(why)
            }
        }
    }

    /// Has the process ended with this program, at the latest.
    fn register(self: &Arc<Self>) {
        static AT_EXIT: Once = Once::new();
        AT_EXIT.call_once(|| at_exit(end_all));
        let mut all = lock(&PROCESSES);
        all.retain(|process| process.strong_count() > 0);
        all.push(Arc::downgrade(self));
    }

    pub(crate) fn description(&self) -> &EngineDescription {
        self.description.get_or_init(EngineDescription::default)
    }

    /// Makes a call and waits for its answer. While it waits, it answers what the engine asks of the
    /// host. `services` is `None` for calls that belong to no session, in which the engine may ask
    /// nothing. Without a `patience`, it waits until the process is killed.
    ///
    /// # Errors
    /// Returns the engine's own error, or [`EngineError::Gone`] if the process has ended.
    fn exchange(
        &self,
        method: &str,
        argument: &str,
        messages: Option<&[MessageView<'_>]>,
        services: Option<&dyn HostServices>,
        patience: Option<Duration>,
    ) -> Result<String, EngineError> {
        let pipe = &mut *lock(&self.pipe);
        if pipe.missing.contains(method) {
            return Err(EngineError::UnknownMethod(method.to_owned()));
        }
        // A process that it has started may hold its standard input, so writing would not fail.
        if self.has_ended() {
            return Err(self.gone());
        }
        pipe.last_call += 1;
        let call = call_line(pipe.last_call, method, argument, messages)?;
        self.send(pipe, &call)?;
        let until = patience.map(|patience| Instant::now() + patience);
        loop {
            let late = || {
                let within = patience.unwrap_or_default().as_millis();
                self.end_late(&format!("did not answer within {within} ms"))
            };
            let line = self.line(pipe, until)?.ok_or_else(late)?;
            match Incoming::read(&line, pipe.last_call) {
                Ok(Incoming::Answer(answer)) => {
                    if let Err(EngineError::UnknownMethod(_)) = &answer {
                        pipe.missing.insert(method.to_owned());
                        return Err(EngineError::UnknownMethod(method.to_owned()));
                    }
                    return answer;
                }
                Ok(Incoming::Call {
                    id,
                    method,
                    argument,
                }) => {
                    let none = || EngineError::Protocol("there are no services here".to_owned());
                    let answer = services
                        .ok_or_else(none)
                        .and_then(|services| serve_services(services, &method, &argument?));
                    // Without an id, the engine waits for no answer.
                    if let Some(id) = id {
                        self.send(pipe, &answer_line(&id, answer)?)?;
                    }
                }
                Ok(Incoming::Other(id)) => {
                    let id = id.to_string();
                    return Err(self.end_because(format!(
                        "it was killed because it answered call {}, but call {} waits for its answer (an answer has \
                         the id of its call, and a call is answered once)",
                        printable(&id, 200),
                        pipe.last_call
                    )));
                }
                Err(_) if is_cut(&line) => {
                    return Err(self.end_because(format!(
                        "it was killed because it wrote a line of more than {} MiB",
                        LONGEST_LINE >> 20
                    )));
                }
                Err(why) => {
                    let text = String::from_utf8_lossy(&line);
                    return Err(self.end_because(format!(
                        "it was killed because it wrote a line to its standard output that is no message of the \
                         protocol: `{}` ({why})",
                        printable(text.trim_end(), 200)
                    )));
                }
            }
        }
    }

    /// Waits for the next line of the process. Returns `None` if none has come by `until`.
    ///
    /// # Errors
    /// Returns [`EngineError::Gone`] if the process has ended.
    fn line(&self, pipe: &Pipe, until: Option<Instant>) -> Result<Option<Vec<u8>>, EngineError> {
        let mut has_ended = false;
        loop {
            // Processes that it has started may write on after it was killed.
            if self.child.is_lost() {
                return Err(self.gone());
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            match pipe.lines.recv_timeout(left.unwrap_or(LOOKS).min(LOOKS)) {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Timeout) if !has_ended => has_ended = self.has_ended(),
                Err(_) => return Err(self.gone()),
            }
        }
    }

    fn send(&self, pipe: &mut Pipe, line: &str) -> Result<(), EngineError> {
        let sent = pipe.input.as_mut().map(|input| {
            input.write_all(line.as_bytes())?;
            input.flush()
        });
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(self.gone()),
        }
    }

    fn has_ended(&self) -> bool {
        self.child.has_ended()
    }

    /// Kills the process, which has missed a deadline, and returns the error for the call that is in
    /// progress.
    fn end_late(&self, how: &str) -> EngineError {
        let pending = match self.pending.load(Ordering::Relaxed) {
            0 => String::new(),
            bytes => format!(
                "; it wrote {bytes} bytes without a line feed: end each message with one, and flush"
            ),
        };
        self.end_because(format!("it {how} and was killed{pending}"))
    }

    /// Kills the process and returns the error for the call that is in progress.
    fn end_because(&self, why: String) -> EngineError {
        self.child.kill(why);
        self.gone()
    }

    /// Returns the error for a call that has lost its process.
    fn gone(&self) -> EngineError {
        let why = self.child.why_lost(CLOSED);
        // Nothing can be heard of it any more.
        self.child.end_within(Duration::ZERO);
        let closed = || "its process closed its standard output".to_owned();
        EngineError::Gone(why.unwrap_or_else(closed))
    }

    /// Closes the standard input of the process. Returns false if a call is in progress.
    fn close_input(&self) -> bool {
        let pipe = self.pipe.try_lock();
        pipe.map(|mut pipe| pipe.input = None).is_ok()
    }
}

impl Drop for StdioProcess {
    fn drop(&mut self) {
        lock(&self.pipe).input = None;
        self.child.end_within(ENDS);
    }
}

/// The standard output of a process, which counts the bytes after the last line feed.
struct Counted {
    output: ChildStdout,
    pending: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.output.read(buffer)?;
        let bytes = buffer.get(..count).unwrap_or_default();
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => (self.pending).store((count - end - 1) as u64, Ordering::Relaxed),
            None => drop(self.pending.fetch_add(count as u64, Ordering::Relaxed)),
        }
        Ok(count)
    }
}

/// Passes the lines of a process on until it closes its output or nobody waits for them any more.
/// What is longer than [`LONGEST_LINE`] is passed on in part, which is no message.
fn read_lines(output: Counted, to: &SyncSender<Vec<u8>>) {
    let mut output = BufReader::new(output);
    loop {
        let mut line = Vec::new();
        match output
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)
        {
            Ok(0) | Err(_) => return,
            Ok(_) if line.iter().all(u8::is_ascii_whitespace) => {}
            Ok(_) => {
                if to.send(line).is_err() {
                    return;
                }
            }
        }
    }
}

/// Returns the major number of a version. Hosts and engines work together if they have the same.
fn major(version: &str) -> &str {
    version.split('.').next().unwrap_or_default()
}

/// Whether this is only the beginning of a line that is longer than [`LONGEST_LINE`].
fn is_cut(line: &[u8]) -> bool {
    line.len() as u64 == LONGEST_LINE && !line.ends_with(b"\n")
}

/// Opens sessions of an engine that is a program, each in a process of its own.
pub(crate) struct StdioFactory {
    launch: StdioLaunch,
    create: Create,
    /// The process that has described the engine. The first session runs in it.
    spare: Mutex<Option<Arc<StdioProcess>>>,
}

impl StdioFactory {
    pub(crate) fn new(
        launch: StdioLaunch,
        described: Option<Arc<StdioProcess>>,
        request: &FactoryRequest<'_>,
    ) -> Self {
        Self {
            launch,
            create: Create::of(request),
            spare: Mutex::new(described),
        }
    }

    /// Returns a process that no session uses.
    fn process(&self) -> Result<Arc<StdioProcess>, EngineError> {
        let spare = lock(&self.spare).take();
        match spare.filter(|spare| !spare.has_ended()) {
            Some(spare) => Ok(spare),
            None => StdioProcess::start(&self.launch).map_err(EngineError::Gone),
        }
    }
}

impl EngineFactory for StdioFactory {
    fn create(_request: &FactoryRequest<'_>) -> Result<Self, EngineError> {
        Err(EngineError::Unsupported(
            "making a factory without a program".to_owned(),
        ))
    }

    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        let services = Arc::clone(request.services.host());
        let process = self.process()?;
        let opened = process.exchange(
            "open",
            &write(&Open::of(request))?,
            None,
            Some(services.as_ref()),
            None,
        );
        match opened {
            // An engine that needs nothing to begin with has no `open`.
            Ok(_) | Err(EngineError::UnknownMethod(_)) => {
                Ok(Box::new(RemoteEngine(StdioSession { process, services })))
            }
            Err(error) => Err(error),
        }
    }

    fn manage(&self, command: &StoreCommand) -> Result<serde_json::Value, EngineError> {
        let process = self.process()?;
        let managed = process.exchange(
            "manage",
            &write(&(command, &self.create))?,
            None,
            None,
            None,
        );
        match managed {
            Err(EngineError::UnknownMethod(_)) => {
                Err(EngineError::Unsupported("keeping sessions".to_owned()))
            }
            answer => read(&answer?),
        }
    }
}

/// One session of an engine that is a program.
struct StdioSession {
    process: Arc<StdioProcess>,
    services: Arc<dyn HostServices>,
}

impl Carrier for StdioSession {
    fn call(
        &self,
        method: &str,
        argument: &str,
        messages: &[MessageView<'_>],
    ) -> Result<String, EngineError> {
        let messages = takes_messages(method).then_some(messages);
        let services = Some(self.services.as_ref());
        self.process
            .exchange(method, argument, messages, services, None)
    }

    // It would be one more method for authors to implement.
    fn joins_calls(&self) -> bool {
        false
    }
}
