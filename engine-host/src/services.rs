//! The host's services, as an engine calls them: in a call of the engine over the connection of its session, and from
//! its own threads over the control connection.

use std::io::Result;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use contexture_engine_api::protocol::{Call, Carrier, Frame, LentServices};
use contexture_engine_api::{EngineError, MessageView, Services};

type Answer = std::result::Result<String, EngineError>;

/// The control connection, for one call at a time.
pub(crate) struct Control {
    host: Mutex<UnixStream>,
    answers: Mutex<Receiver<Answer>>,
}

/// The answers on the control connection.
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
        // Held until the answer is there.
        let answers = lock(&self.answers);
        Frame::Beside(session, call).send(&mut *lock(&self.host))?;
        let ended = |_| EngineError::Gone("the host has ended".to_owned());
        answers.recv().map_err(ended)?
    }
}

impl Answers {
    /// Passes answers on until the host closes the connection.
    pub(crate) fn pass_on(&mut self) {
        while let Ok(Frame::Answer(answer)) = Frame::receive(&mut self.host) {
            if self.to.send(answer).is_err() {
                return;
            }
        }
    }
}

/// The services of one session.
pub(crate) struct SessionServices {
    number: u64,
    /// The session's connection, on which only its thread may call.
    host: Mutex<UnixStream>,
    thread: ThreadId,
    control: Arc<Control>,
}

impl SessionServices {
    /// The services for the session that this thread serves.
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
