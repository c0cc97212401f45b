//! What `/metrics` shows, in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use contexture::engines::{EngineHealth, HealthState};

use crate::Totals;

/// The counters, and what they count. A figure that is not listed is not kept.
const COUNTERS: &[(&str, &str)] = &[
    (
        "requests_total",
        "Requests, by endpoint and by what became of them.",
    ),
    (
        "failed_open_total",
        "Requests that left as they came because something failed, by the reason.",
    ),
    (
        "not_managed_total",
        "Requests that were no turn of a session, or whose session runs another engine than the configured one, by the \
         reason.",
    ),
    (
        "unproven_total",
        "Sessions that began because a request did not show that it goes on with one that is there.",
    ),
    (
        "engine_failures_total",
        "Requests whose engine or store did not do its part, whatever became of them, by the part.",
    ),
    (
        "upstream_responses_total",
        "Answers of providers, by status.",
    ),
    ("compactions_total", "Compactions, by outcome."),
    (
        "hidden_rounds_total",
        "Rounds in which the model called tools of the engine's alone.",
    ),
    ("tool_calls_total", "Calls of the engine's tools, by tool."),
    (
        "resent_total",
        "Requests that were sent again, smaller, after the provider said that they do not fit.",
    ),
    ("cut_streams_total", "Streams that a provider did not end."),
    (
        "saved_tokens_total",
        "Tokens that requests would have had more without the engine (an estimate).",
    ),
    (
        "tokens_total",
        "Tokens as providers reported them, hidden rounds included, by kind: each token of a prompt is input, cache_read or cache_write.",
    ),
    (
        "turn_seconds_total",
        "Time that requests were held up before they went on.",
    ),
    ("turns_total", "Requests that were held up."),
];

/// All figures since the start.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    counters: Mutex<BTreeMap<(&'static str, String), f64>>,
    pub(crate) active: AtomicI64,
    /// Of `active`, the requests of each tenant.
    pub(crate) active_of_tenants: Mutex<BTreeMap<String, i64>>,
    pub(crate) open_sessions: AtomicI64,
    /// How much more requests would have cost without the engine, in millionths of a dollar. It may fall.
    pub(crate) saved_microdollars: AtomicI64,
}

impl Metrics {
    /// Adds to a counter. `labels` are `name="value"` pairs whose values need no escapes.
    pub(crate) fn add(&self, name: &'static str, labels: &str, by: f64) {
        debug_assert!(COUNTERS.iter().any(|(known, _)| *known == name), "{name}");
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        match counters.get_mut(&(name, labels.to_owned())) {
            Some(counter) => *counter += by,
            None => {
                counters.insert((name, labels.to_owned()), by);
            }
        }
    }

    /// Notes how long a request was held up.
    pub(crate) fn held(&self, time: Duration) {
        self.add("turn_seconds_total", "", time.as_secs_f64());
        self.add("turns_total", "", 1.0);
    }

    /// The sum of a counter over all labels that contain this text.
    fn sum(&self, name: &str, label: &str) -> f64 {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let own = counters
            .iter()
            .filter(|((known, labels), _)| *known == name && labels.contains(label));
        own.map(|(_, value)| value).sum()
    }

    /// The totals since the start.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            requests: self.sum("requests_total", "") as u64,
            others: self.sum("not_managed_total", "reason=\"endpoint\"") as u64,
            managed: self.sum("requests_total", "outcome=\"managed\"") as u64,
            saved_tokens: self.sum("saved_tokens_total", "") as u64,
            saved_dollars: self.saved_microdollars.load(Ordering::Relaxed) as f64 / 1e6,
        }
    }

    /// The page, with the health of these engines.
    pub(crate) fn page(&self, engines: &[EngineHealth]) -> String {
        let mut page = String::new();
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, help) in COUNTERS {
            // A String takes everything.
            let _ = writeln!(
                page,
                "# HELP contexture_{name} {help}\n# TYPE contexture_{name} counter"
            );
            for ((_, labels), value) in counters.iter().filter(|((known, _), _)| known == name) {
                let labels = match labels.is_empty() {
                    true => String::new(),
                    false => format!("{{{labels}}}"),
                };
                let _ = writeln!(page, "contexture_{name}{labels} {value}");
            }
        }
        for (name, help, value) in [
            (
                "active_requests",
                "Requests that are being answered.",
                &self.active,
            ),
            ("open_sessions", "Sessions in memory.", &self.open_sessions),
        ] {
            let value = value.load(Ordering::Relaxed);
            let _ = writeln!(
                page,
                "# HELP contexture_{name} {help}\n# TYPE contexture_{name} gauge\ncontexture_{name} {value}"
            );
        }
        type Gauge = (&'static str, &'static str, fn(&EngineHealth) -> u64);
        const GAUGES: [Gauge; 2] = [
            (
                "engine_in_quarantine",
                "Whether an engine that kept failing is not called for now, by any session.",
                |health| u64::from(health.state != HealthState::Serving),
            ),
            (
                "sessions_in_quarantine",
                "Sessions in which an engine kept failing and is not called for now, by engine.",
                |health| u64::from(health.sessions_in_quarantine),
            ),
        ];
        for (name, help, value) in GAUGES {
            let _ = writeln!(
                page,
                "# HELP contexture_{name} {help}\n# TYPE contexture_{name} gauge"
            );
            for health in engines {
                let (engine, value) = (&health.engine, value(health));
                let _ = writeln!(page, "contexture_{name}{{engine=\"{engine}\"}} {value}");
            }
        }
        page
    }
}
