//! The log, which goes to stderr as lines of text or, for programs, as one JSON object a line.
//!
//! [`to_stderr`] sets it up for the process. Text has no times and no colours, because a terminal
//! or a supervisor adds them. JSON names the request that a line belongs to: its `request_id`, and
//! its `trace_id` if it is part of a trace.
//!
//! Secrets are masked in both. In JSON each value is masked before it is written, so that a mask
//! never damages the syntax.
//!
//! A gateway must not wait for the reader of its log. [`in_background`] makes a thread of its own
//! write the lines, and [`flush`] waits for it at the end.

use std::collections::VecDeque;
use std::fmt;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use contexture::mask_secrets;
use contexture_gateway::Telemetry;
use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Record};
use tracing::{Event, Id, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::terminal::visible;

/// How the log is written, as the option `--log-format` takes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// One JSON object per line, with the request and the trace that it belongs to
    Json,
}

/// Sends the log to stderr. If `-v` is not given, the variable `RUST_LOG` decides what is logged, and
/// by default these are warnings.
///
/// The spans of `telemetry` go to its collector.
pub(crate) fn to_stderr(verbose: u8, format: LogFormat, telemetry: Option<&Telemetry>) {
    let filter = match (verbose, format) {
        // The command that opened a session prints its warnings, so they are not logged as well.
        (0, _) => EnvFilter::try_from_default_env()
            .unwrap_or_else(|_| EnvFilter::new("warn,contexture_session=error")),
        // People do not want to read a line for each request.
        (1, LogFormat::Text) => EnvFilter::new("warn,contexture=info,contexture_requests=warn"),
        (1, LogFormat::Json) => EnvFilter::new("warn,contexture=info"),
        (2, _) => EnvFilter::new("warn,contexture=debug"),
        _ => EnvFilter::new("trace"),
    };
    let text = layer()
        .with_writer(|| VisibleStderr)
        // The colours of the log could not be told from those in the text that it quotes.
        .with_ansi(false)
        .without_time()
        .with_target(verbose > 1)
        .with_filter(filter_fn(|metadata| metadata.is_event()));
    // This fails if a program set a subscriber of its own before it called `run`. That subscriber
    // then stays.
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(telemetry.map(Telemetry::layer))
        .with((format == LogFormat::Text).then_some(text))
        .with((format == LogFormat::Json).then_some(JsonLog))
        .try_init();
    if format == LogFormat::Json {
        std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    }
}

/// The most bytes of lines that wait to be written.
const MAX_WAITING_BYTES: usize = 4 << 20;
/// How long [`flush`] waits for a reader that does not read.
const FLUSH_TIME: Duration = Duration::from_secs(1);

/// The lines that wait to be written, if that is done in the background.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Lines that wait for the thread that writes them. If they are too many, further ones are lost.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<String>,
    bytes: usize,
    /// How many lines were lost since the last ones were taken.
    lost: u64,
    is_writing: bool,
}

impl Queue {
    fn push(&self, line: String) {
        let mut waiting = self.lock();
        if waiting.bytes + line.len() > MAX_WAITING_BYTES {
            waiting.lost += 1;
            return;
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line);
        self.changed.notify_all();
    }

    /// Writes the lines as they come, and never returns. The lines that were lost are counted in a
    /// line of their own.
    fn write_all(&self, mut to: impl Write) {
        loop {
            let mut waiting = self.lock();
            waiting.is_writing = false;
            self.changed.notify_all();
            waiting = (self.changed)
                .wait_while(waiting, |waiting| waiting.lines.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
            let taken = std::mem::take(&mut *waiting);
            waiting.is_writing = true;
            drop(waiting);
            if taken.lost > 0 {
                // This takes its place behind the lines that were taken.
                tracing::warn!(
                    "the log lost {} lines because its reader was too slow",
                    taken.lost
                );
            }
            for line in taken.lines {
                // Without a reader there is nobody to tell.
                let _ = to.write_all(line.as_bytes());
            }
        }
    }

    /// Waits until everything is written, for at most this time.
    fn flush(&self, most: Duration) {
        let is_busy = |waiting: &mut Waiting| waiting.is_writing || !waiting.lines.is_empty();
        let _ = self.changed.wait_timeout_while(self.lock(), most, is_busy);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        contexture::lock(&self.waiting)
    }
}

/// From now on, writes the log on a thread of its own, so that nothing else waits for the reader of
/// stderr. If the thread cannot be started, the log is written as before.
pub(crate) fn in_background() {
    let thread = std::thread::Builder::new().name("log".to_owned());
    let started = thread.spawn(|| QUEUE.wait().write_all(std::io::stderr()));
    if started.is_ok() {
        QUEUE.get_or_init(Queue::default);
    }
}

/// Waits a moment until the log is written. Needed before the process ends, and before something
/// else is written to stderr.
pub(crate) fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH_TIME);
    }
}

/// Writes a line of the log, now or in the background.
fn write(line: String) {
    match QUEUE.get() {
        Some(queue) => queue.push(line),
        // Without a reader there is nobody to tell.
        None => drop(std::io::stderr().write_all(line.as_bytes())),
    }
}

/// Stderr as the log in text writes to it. Each line is masked and made visible.
struct VisibleStderr;

impl Write for VisibleStderr {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        write(visible(&mask_secrets(&text)).into());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The fields of spans that every line inside the span repeats.
const REPEATED: [&str; 2] = ["request_id", "trace_id"];

/// The [`REPEATED`] fields of a span, kept with the span.
#[derive(Default)]
struct RepeatedFields(Fields);

/// Writes events to stderr as JSON.
struct JsonLog;

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for JsonLog {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = RepeatedFields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<RepeatedFields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut line = Map::new();
        line.insert(
            "timestamp".into(),
            format!("{:.3}", Timestamp::now()).into(),
        );
        line.insert("level".into(), metadata.level().as_str().into());
        line.insert("target".into(), metadata.target().into());
        line.extend(fields.0.remove_entry("message"));
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(own) = span.extensions().get::<RepeatedFields>() {
                line.extend(own.0.0.clone());
            }
        }
        for (name, value) in fields.0 {
            line.entry(name).or_insert(value);
        }
        // JSON allows control characters in texts, and terminals obey some of them.
        write(visible(&Value::Object(line).to_string()).into_owned() + "\n");
    }
}

/// Fields of an event as JSON, with secrets masked.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, mask_secrets(value).into_owned());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }
}

impl Visit for RepeatedFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if REPEATED.contains(&field.name()) {
            self.0.record_debug(field, value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if REPEATED.contains(&field.name()) {
            self.0.record_str(field, value);
        }
    }
}

#[cfg(test)]
mod tests;
