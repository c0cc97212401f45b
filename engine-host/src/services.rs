//! The host's services, as an engine calls them.
//!
//! An engine calls a service in one of two situations. During a call of the engine, the host waits
//! on the connection of that session, so the service is called on the same connection. Outside of a
//! call, from a thread of the engine's own, nobody waits there. The service is then called on the
//! control connection, together with the number of the session.
//!
//! [`SessionServices`] decides between the two by comparing threads. [`Control`] and [`Answers`]
//! share the control connection: one sends calls, the other receives answers.

use std::io::Result;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use contexture_engine_api::protocol::{Call, Carrier, Frame, LentServices};
use contexture_engine_api::{EngineError, MessageView, Services};

/// The result of a call, as JSON text.
pub(crate) type Answer = std::result::Result<String, EngineError>;

/// The control connection. It carries one call of a service at a time, because calls on it have no
/// numbers.
pub(crate) struct Control {
    host: Mutex<UnixStream>,
    answers: Mutex<Receiver<Answer>>,
}

/// The receiving side of the control connection. It passes each answer to the call that waits for
/// it.
pub(crate) struct Answers {
    host: UnixStream,
    to: Sender<Answer>,
}

impl Control {
    pub(crate) fn over(host: UnixStream) -> Result<(Self, Answers)> {
        let (to, answers) = channel();
        let reads = host.try_clone()?;
        let control = Self {
            host: Mutex::new(host),
            answers: Mutex::new(answers),
        };
        Ok((control, Answers { host: reads, to }))
    }

    fn call(&self, session: u64, call: Call) -> Answer {
        // Held until the answer has arrived, so that no other call can take it.
        let answers = lock(&self.answers);
        Frame::Beside(session, call).send(&mut *lock(&self.host))?;
        let ended = |_| EngineError::Gone("the host has ended".to_owned());
        answers.recv().map_err(ended)?
    }
}

impl Answers {
    /// Passes answers on until the host closes the connection or nobody waits for answers any more.
    pub(crate) fn pass_on(&mut self) {
        while let Ok(Frame::Answer(answer)) = Frame::receive(&mut self.host) {
            if self.to.send(answer).is_err() {
                return;
            }
        }
    }
}

/// The services that one session's engine gets from the host. An engine may call them from any
/// thread, and in any number of threads at once.
pub(crate) struct SessionServices {
    number: u64,
    /// The connection of the session. Only the thread that serves the session may use it for calls.
    host: Mutex<UnixStream>,
    thread: ThreadId,
    control: Arc<Control>,
}

impl SessionServices {
    /// Creates the services for the session that the current thread serves. Fails if the connection
    /// cannot be duplicated.
    pub(crate) fn lend(
        number: u64,
        host: &UnixStream,
        control: Arc<Control>,
    ) -> std::result::Result<Services, EngineError> {
        let host = host.try_clone();
        let host = host.map_err(|error| EngineError::Gone(error.to_string()))?;
        Ok(Services::new(Arc::new(LentServices(Self {
            number,
            host: Mutex::new(host),
            thread: std::thread::current().id(),
            control,
        }))))
    }
}

impl Carrier for SessionServices {
    fn call(&self, method: &str, argument: &str, messages: &[MessageView<'_>]) -> Answer {
        let call = Call::new(method, argument, messages);
        // Another thread must not use the session's connection: its call would mix with the answer
        // that the host waits for.
        if std::thread::current().id() != self.thread {
            return self.control.call(self.number, call);
        }
        let host = &mut *lock(&self.host);
        Frame::Call(call).send(host)?;
        match Frame::receive(host)? {
            Frame::Answer(answer) => answer,
            _ => Err(EngineError::Protocol(
                "the host answered with a call".to_owned(),
            )),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
