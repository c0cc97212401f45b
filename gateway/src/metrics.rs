//! The metrics that `/metrics` shows, in the text format of Prometheus.
//!
//! [`Metrics`] is shared by all requests. Counters have to be listed in `COUNTERS` and histograms in
//! `HISTOGRAMS`, which also hold their help texts. [`Metrics::add`] counts, [`Metrics::observe`]
//! records a duration, and [`Metrics::page`] renders everything.
//!
//! A counter with a fixed set of labels is shown from the start, with the value zero. Otherwise
//! Prometheus would first see it with the failures that it already counts, and take these for no
//! increase.
//!
//! A label has few values, because each combination is a time series that Prometheus stores. What
//! clients choose is bounded by [`Metrics::call_labels`].
//!
//! [`Totals`] sums some of the counters up for the command line. The history of single sessions is
//! kept by [`account`](crate::account).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use contexture::engines::{EngineHealth, HealthState};
use contexture::{Usage, lock};
use http::HeaderMap;

use crate::tls::CertificateEnd;
use crate::{Totals, headers};

/// The labels of a counter with all their values. A counter without labels has the empty list. None
/// if the values are not a fixed set.
type FixedLabels = Option<&'static [(&'static str, &'static [&'static [&'static str]])]>;

/// The APIs whose requests are counted.
const APIS: &[&str] = &["chat", "responses", "messages", "gemini"];
/// What becomes of a request, see [`Status`](crate::unmanaged::Status).
const OUTCOMES: &[&str] = &[
    "managed", "observed", "side-call", "not-managed", "failed-open",
];
/// Why a request fails open.
const FAILURES: &[&str] = &[
    "engine", "engine_not_open", "format", "held_too_long", "not_text", "overtaken", "panic",
    "provider_refused", "record", "session_in_use", "storage", "too_many_messages",
    "unknown_window",
];
/// Why a request is refused.
const REFUSALS: &[&str] = &[
    "broken_body", "client_timeout", "content_encoding", "content_type", "host", "max_requests",
    "origin", "path", "tenant_requests", "token", "too_large",
];
/// Why a request that neither fails nor is refused counts as not managed.
const OTHERS: &[&str] = &[
    "cachedContent",
    "candidateCount",
    "compact_threshold",
    "compaction_trigger",
    "context_management",
    "conversation",
    "endpoint",
    "fallback",
    "item_reference",
    "n",
    "no messages",
    "observed",
    "previous_response_id",
    "quarantine",
    "side call",
    "thread",
];

/// The counters with their labels and help texts. A counter that is not listed is not shown.
const COUNTERS: &[(&str, FixedLabels, &str)] = &[
    (
        "requests_total",
        Some(&[("endpoint", &[APIS]), ("outcome", &[OUTCOMES])]),
        "Requests, by endpoint and outcome.",
    ),
    (
        "failed_open_total",
        Some(&[("reason", &[FAILURES])]),
        "Requests that were passed on unchanged because something failed, by reason.",
    ),
    (
        "not_managed_total",
        Some(&[("reason", &[FAILURES, REFUSALS, OTHERS])]),
        "Requests that were not managed, or whose session runs another engine than the configured one, by reason.",
    ),
    (
        "unproven_total",
        Some(&[]),
        "Sessions that began because a request did not prove that it continues an existing one.",
    ),
    (
        "branches_total",
        Some(&[]),
        "Sessions that began because a request is a branch of an existing one.",
    ),
    (
        "engine_failures_total",
        Some(&[("part", &[&["engine", "store"]])]),
        "Requests whose engine or store failed, by part.",
    ),
    (
        "upstream_responses_total",
        None,
        "Answers of providers, by HTTP status. The status 0 stands for no answer.",
    ),
    ("compactions_total", None, "Compactions, by outcome."),
    (
        "hidden_rounds_total",
        Some(&[]),
        "Rounds in which the model called only tools of the engine.",
    ),
    (
        "tool_calls_total",
        None,
        "Calls of the engine's tools, by tool.",
    ),
    (
        "resent_total",
        Some(&[]),
        "Requests that were shortened and sent again because the provider refused them as too long.",
    ),
    (
        "refused_as_too_long_total",
        Some(&[]),
        "Turns that the provider refused as too long, and that could not be shortened any further.",
    ),
    (
        "sessions_total",
        Some(&[]),
        "Sessions that came into memory. One that comes back counts again.",
    ),
    (
        "cut_streams_total",
        Some(&[]),
        "Streams that ended before the answer was complete.",
    ),
    (
        "saved_tokens_total",
        Some(&[]),
        "Estimated tokens that the engine removed from requests.",
    ),
    (
        "tokens_total",
        None,
        "Tokens that providers reported, including hidden rounds, by kind. Each prompt token counts as input, \
         cache_read or cache_write.",
    ),
    (
        "summary_tokens_total",
        None,
        "Tokens that the models that write summaries reported, by kind. They are not in tokens_total.",
    ),
];

/// The histograms of durations in seconds, with their help texts.
const HISTOGRAMS: &[(&str, &str)] = &[
    (
        "request_seconds",
        "From a request's arrival to the last byte of its answer, by endpoint.",
    ),
    (
        "hold_seconds",
        "How long requests with a conversation were held before they were sent.",
    ),
    (
        "upstream_seconds",
        "From sending a request to the head of the provider's answer, by provider.",
    ),
    (
        "model_call_seconds",
        "From sending a turn to the end of the model's answer, by model, engine, agent and tenant. Each hidden round is a call.",
    ),
    ("compaction_seconds", "Compactions, by engine."),
];

/// The upper bounds of the buckets of all histograms, in seconds.
const BUCKETS: [f64; 17] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 300.0,
];

/// The most models that have series of their own. Clients choose the names, so there has to be a
/// limit. Further ones count as `other`.
const MAX_MODELS: usize = 50;
/// The label of what has no series of its own.
const OTHER: &str = "other";

/// The agents that are known by how their `user-agent` begins, in lower case.
const AGENTS: [(&str, &str); 21] = [
    ("claude-cli", "claude-code"),
    ("claude-code", "claude-code"),
    ("codex", "codex"),
    ("opencode", "opencode"),
    ("openclaw", "openclaw"),
    ("hermes", "hermes"),
    ("aider", "aider"),
    ("cline", "cline"),
    ("goose", "goose"),
    ("qwencode", "qwen-code"),
    ("geminicli", "gemini-cli"),
    ("kilo/", "kilo-code"),
    ("kimicli/", "kimi-cli"),
    ("kimi-code-cli/", "kimi-code"),
    ("litellm", "litellm"),
    ("ai-sdk", "ai-sdk"),
    ("openai/", "openai-sdk"),
    ("asyncopenai/", "openai-sdk"),
    ("anthropic/", "anthropic-sdk"),
    ("asyncanthropic/", "anthropic-sdk"),
    ("google-genai-sdk/", "google-sdk"),
];

/// The agent that sent a request, for the label of that name.
pub(crate) fn agent(headers: &HeaderMap) -> &'static str {
    let named = headers::text(headers, "user-agent").unwrap_or_default();
    let named = named.to_ascii_lowercase();
    let mut known = AGENTS.iter();
    let found = known.find(|(start, _)| named.starts_with(start));
    found.map_or(OTHER, |(_, agent)| agent)
}

/// How often durations fell into each bucket.
#[derive(Debug, Default)]
struct Histogram {
    /// One for each of [`BUCKETS`], and one for all longer durations.
    counts: [u64; BUCKETS.len() + 1],
    sum: f64,
}

impl Histogram {
    /// Writes the histogram as Prometheus reads it: each bucket counts all durations up to its bound.
    fn render(&self, name: &str, labels: &str, page: &mut String) {
        let and = if labels.is_empty() { "" } else { "," };
        let mut count = 0;
        for (at, own) in self.counts.iter().enumerate() {
            count += own;
            let bound = BUCKETS.get(at).map_or("+Inf".to_owned(), f64::to_string);
            let _ = writeln!(
                page,
                "contexture_{name}_bucket{{{labels}{and}le=\"{bound}\"}} {count}"
            );
        }
        let labels = in_braces(labels);
        let sum = self.sum;
        let _ = writeln!(
            page,
            "contexture_{name}_sum{labels} {sum}\ncontexture_{name}_count{labels} {count}"
        );
    }
}

/// All counters and gauges since the gateway started. Counters are keyed by their name and their
/// labels, as Prometheus writes them.
#[derive(Debug)]
pub(crate) struct Metrics {
    counters: Mutex<BTreeMap<(&'static str, String), f64>>,
    histograms: Mutex<BTreeMap<(&'static str, String), Histogram>>,
    /// The models that have series of their own.
    models: Mutex<BTreeSet<String>>,
    pub(crate) active: AtomicI64,
    /// The requests of the status page that are being answered. They are not part of `active`.
    pub(crate) active_of_page: AtomicI64,
    pub(crate) active_of_tenants: Mutex<BTreeMap<String, i64>>,
    pub(crate) open_sessions: AtomicI64,
    /// Estimated savings in millionths of a US dollar. It falls if requests cost more with the
    /// engine.
    pub(crate) saved_microdollars: AtomicI64,
}

impl Default for Metrics {
    /// Metrics of a gateway that starts: counters with fixed labels are zero.
    fn default() -> Self {
        let counters = COUNTERS.iter().flat_map(|(name, labels, _)| {
            let all = labels.map(all_labels).unwrap_or_default();
            all.into_iter().map(|labels| ((*name, labels), 0.0))
        });
        Self {
            counters: Mutex::new(counters.collect()),
            histograms: Mutex::default(),
            models: Mutex::default(),
            active: AtomicI64::default(),
            active_of_page: AtomicI64::default(),
            active_of_tenants: Mutex::default(),
            open_sessions: AtomicI64::default(),
            saved_microdollars: AtomicI64::default(),
        }
    }
}

/// Writes the lines before the values of a metric: its help text and its type.
fn begin(page: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(
        page,
        "# HELP contexture_{name} {help}\n# TYPE contexture_{name} {kind}"
    );
}

/// Labels as they follow the name of a metric. Empty if there are none.
fn in_braces(labels: &str) -> String {
    match labels.is_empty() {
        true => String::new(),
        false => format!("{{{labels}}}"),
    }
}

/// All combinations of these labels, as Prometheus writes them.
fn all_labels(fixed: &[(&str, &[&[&str]])]) -> Vec<String> {
    fixed
        .iter()
        .fold(vec![String::new()], |all, (name, values)| {
            let more = |before: &String| {
                let and = if before.is_empty() { "" } else { "," };
                let values = values.iter().flat_map(|some| some.iter());
                let all = values.map(|value| format!("{before}{and}{name}=\"{value}\""));
                all.collect::<Vec<_>>()
            };
            all.iter().flat_map(more).collect()
        })
}

impl Metrics {
    /// Adds to a counter. `labels` are `name="value"` pairs whose values need no escapes, or empty.
    pub(crate) fn add(&self, name: &'static str, labels: &str, by: f64) {
        let mut counters = lock(&self.counters);
        let key = (name, labels.to_owned());
        // A counter that is not listed would never be shown, and a label that is not listed would
        // not begin at zero.
        debug_assert!(
            counters.contains_key(&key)
                || COUNTERS.iter().any(|one| one.0 == name && one.1.is_none()),
            "{name} {labels}"
        );
        *counters.entry(key).or_default() += by;
    }

    /// Adds what a model call used to a counter of tokens by kind. Each token counts as one kind, so
    /// that the kinds add up. `labels` are as in [`add`](Self::add), and not empty.
    pub(crate) fn add_tokens(&self, name: &'static str, labels: &str, usage: &Usage) {
        let cached = usage.cache_read_tokens + usage.cache_write_tokens;
        let kinds = [
            ("input", usage.input_tokens.saturating_sub(cached)),
            ("output", usage.output_tokens),
            ("cache_read", usage.cache_read_tokens),
            ("cache_write", usage.cache_write_tokens),
        ];
        for (kind, tokens) in kinds {
            self.add(name, &format!("kind=\"{kind}\",{labels}"), tokens as f64);
        }
    }

    /// Adds a duration to a histogram. `labels` are as in [`add`](Self::add).
    pub(crate) fn observe(&self, name: &'static str, labels: &str, time: Duration) {
        // A histogram that is not listed would never be shown.
        debug_assert!(HISTOGRAMS.iter().any(|(known, _)| *known == name), "{name}");
        let seconds = time.as_secs_f64();
        let bucket = BUCKETS.partition_point(|bound| *bound < seconds);
        let mut all = lock(&self.histograms);
        let own = all.entry((name, labels.to_owned())).or_default();
        own.sum += seconds;
        if let Some(count) = own.counts.get_mut(bucket) {
            *count += 1;
        }
    }

    /// The labels of a model call. Each has few values, whatever clients send: the configuration
    /// names all tenants. There is no label for a request without one.
    pub(crate) fn call_labels(
        &self,
        model: &str,
        engine: &str,
        agent: &str,
        tenant: Option<&str>,
    ) -> String {
        let is_plain = |model: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:/@".contains(&byte);
            (1..=64).contains(&model.len()) && model.bytes().all(is_plain)
        };
        let mut models = lock(&self.models);
        let has_own = models.contains(model)
            || (models.len() < MAX_MODELS && is_plain(model) && models.insert(model.to_owned()));
        let model = if has_own { model } else { OTHER };
        let tenant = tenant.map_or(String::new(), |name| {
            // Prometheus knows these three escapes.
            let name = name.replace('\\', r"\\");
            let name = name.replace('"', r#"\""#).replace('\n', r"\n");
            format!(",tenant=\"{name}\"")
        });
        format!("model=\"{model}\",engine=\"{engine}\",agent=\"{agent}\"{tenant}")
    }

    /// The sum of a counter over all label sets that contain this text. An empty text matches all.
    fn sum(&self, name: &str, label: &str) -> f64 {
        let counters = lock(&self.counters);
        let own = counters
            .iter()
            .filter(|((known, labels), _)| *known == name && labels.contains(label));
        own.map(|(_, value)| value).sum()
    }

    /// The totals since the start, for the person who runs the gateway. Tokens and dollars are
    /// estimates.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            requests: self.sum("requests_total", "") as u64,
            others: self.sum("not_managed_total", "reason=\"endpoint\"") as u64,
            managed: self.sum("requests_total", "outcome=\"managed\"") as u64,
            failed_open: self.sum("failed_open_total", "") as u64,
            refused_as_too_long: self.sum("refused_as_too_long_total", "") as u64,
            sessions: self.sum("sessions_total", "") as u64,
            compactions: self.sum("compactions_total", "outcome=\"compacted\"") as u64,
            saved_tokens: self.sum("saved_tokens_total", "") as u64,
            saved_dollars: self.saved_microdollars.load(Ordering::Relaxed) as f64 / 1e6,
        }
    }

    /// Renders all metrics in Prometheus' text format, including the health of these engines and the
    /// ends of these certificates.
    pub(crate) fn page(&self, engines: &[EngineHealth], certificates: &[CertificateEnd]) -> String {
        let mut page = String::new();
        let counters = lock(&self.counters);
        for (name, _, help) in COUNTERS {
            begin(&mut page, name, "counter", help);
            for ((_, labels), value) in counters.iter().filter(|((known, _), _)| known == name) {
                // Writing to a String never fails.
                let _ = writeln!(page, "contexture_{name}{} {value}", in_braces(labels));
            }
        }
        drop(counters);
        let histograms = lock(&self.histograms);
        for (name, help) in HISTOGRAMS {
            begin(&mut page, name, "histogram", help);
            let own = histograms.iter().filter(|((known, _), _)| known == name);
            for ((_, labels), histogram) in own {
                histogram.render(name, labels, &mut page);
            }
        }
        let count = |gauge: &AtomicI64| gauge.load(Ordering::Relaxed) as f64;
        for (name, help, value) in [
            (
                "saved_dollars",
                "Estimated savings in US dollars at list prices. Negative if the engine cost more than it saved.",
                count(&self.saved_microdollars) / 1e6,
            ),
            (
                "active_requests",
                "Requests that are being answered.",
                count(&self.active),
            ),
            (
                "open_sessions",
                "Sessions in memory.",
                count(&self.open_sessions),
            ),
        ] {
            begin(&mut page, name, "gauge", help);
            let _ = writeln!(page, "contexture_{name} {value}");
        }
        type Gauge = (&'static str, &'static str, fn(&EngineHealth) -> u64);
        const GAUGES: [Gauge; 2] = [
            (
                "engine_in_quarantine",
                "1 if an engine kept failing and is in quarantine for all sessions, by engine.",
                |health| u64::from(health.state != HealthState::Serving),
            ),
            (
                "sessions_in_quarantine",
                "Sessions in which an engine kept failing and is in quarantine, by engine.",
                |health| u64::from(health.sessions_in_quarantine),
            ),
        ];
        for (name, help, value) in GAUGES {
            begin(&mut page, name, "gauge", help);
            for health in engines {
                let (engine, value) = (&health.engine, value(health));
                let _ = writeln!(page, "contexture_{name}{{engine=\"{engine}\"}} {value}");
            }
        }
        let _ = writeln!(
            page,
            "# HELP contexture_certificate_end_timestamp_seconds When a certificate expires, in seconds since the Unix \
             epoch, by the section of the configuration that names it.\n\
             # TYPE contexture_certificate_end_timestamp_seconds gauge"
        );
        for CertificateEnd { section, at } in certificates {
            let at = at.as_second();
            let _ = writeln!(
                page,
                "contexture_certificate_end_timestamp_seconds{{section=\"{section}\"}} {at}"
            );
        }
        page
    }
}
