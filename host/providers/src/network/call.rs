//! One model call: a request, its answer, and retries after transient faults.
//!
//! [`ModelCall::run`] is the function to read first. It sends the request and retries until there
//! is an answer, a permanent fault, or no time left. Which faults are worth a retry is decided in
//! `failure`.
//!
//! Between retries it pauses: as long as the server asks for, or half a second at first and twice
//! as long each time, with random jitter. A server that rejects the field for the answer limit is
//! asked again at once with the other field, and [`Target`] remembers that for all later calls.
//!
//! The sizes of answers and error bodies are bounded, because the server may be any program at a
//! configured address.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use contexture_engine_api::{FailureKind, ModelAnswer, ModelFailure, ModelRequest};
use contexture_formats::{known_usage, parse_json};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use tokio::time::{Instant, sleep};

use super::anthropic;
use super::failure::{Fault, Rejection, Remedy, quote};
use super::gemini;
use super::openai::{self, LimitField};
use crate::endpoint::{ApiFormat, Endpoint};
use crate::question::Mask;
use crate::usage_by_model::UsageByModel;

const RETRIES: u32 = 3;
/// The pause before the first retry. Each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause that a server may ask for. If it asks for more, the call fails, so that the
/// conversation is not held up.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The largest answer that is accepted, in bytes. Real ones stay under a few hundred KiB.
const MAX_ANSWER: usize = 8 * 1024 * 1024;
/// The most bytes that are read of an error's body. The rest is ignored.
const MAX_ERROR: usize = 64 * 1024;

/// A model as the client calls it: the endpoint, and what earlier calls have learned about the
/// server.
pub(super) struct Target {
    pub(super) endpoint: Endpoint,
    /// Whether the server rejected the usual field for the answer limit. Shared by all calls, so
    /// that only the first one pays for the discovery.
    other_limit_field: AtomicBool,
}

impl Target {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            other_limit_field: AtomicBool::new(false),
        }
    }

    /// Returns the field to try first. OpenAI itself accepts the new field for every model, and
    /// other servers mostly know only the old one.
    fn usual_limit_field(&self) -> LimitField {
        match self.endpoint.url().host() {
            Some("api.openai.com") => LimitField::MaxCompletionTokens,
            _ => LimitField::MaxTokens,
        }
    }

    /// Returns the field that the server accepts, as far as it is known: the usual one, unless the
    /// server has rejected it.
    fn limit_field(&self) -> LimitField {
        let usual = self.usual_limit_field();
        if self.other_limit_field.load(Ordering::Relaxed) {
            usual.other()
        } else {
            usual
        }
    }

    /// Remembers that the server rejects this field, so that later calls use the other one.
    fn refused(&self, limit: LimitField) {
        let other = limit == self.usual_limit_field();
        self.other_limit_field.store(other, Ordering::Relaxed);
    }
}

/// The question that a call sends, in one of the two forms of a [`Question`](crate::Question).
pub(super) enum Asked<'a> {
    /// Instructions and material, from which the body is built. Their secrets are masked already.
    Fresh(&'a ModelRequest),
    /// A complete body: the agent's last request with a question at its end. It is sent unchanged,
    /// because masking would change the prefix that the provider has in its cache.
    Continued(String),
}

impl Asked<'_> {
    fn purpose(&self) -> &str {
        match self {
            Self::Fresh(request) => &request.purpose,
            Self::Continued(_) => "continued",
        }
    }
}

/// The inputs of one call. It lives as long as the call with all its retries.
pub(super) struct ModelCall<'a> {
    pub(super) client: &'a Client,
    pub(super) target: &'a Target,
    /// To which the usage of every answer is added.
    pub(super) used: &'a UsageByModel,
    pub(super) asked: Asked<'a>,
    pub(super) mask: Mask,
    /// The time limit of one HTTP request. It is shortened if the deadline of the call is closer.
    pub(super) timeout: Duration,
    /// The deadline of the call with all its retries and pauses. No pause may end after it.
    pub(super) deadline: Instant,
}

impl ModelCall<'_> {
    /// Sends the request until there is an answer, a permanent fault, or no time left.
    ///
    /// # Errors
    /// Returns the last failure. If there were retries, its message says how often the server was
    /// asked.
    pub(super) async fn run(&self) -> Result<ModelAnswer, ModelFailure> {
        let mut retries = 0;
        let mut renamed = false;
        loop {
            let limit = self.target.limit_field();
            let fault = match self.ask(limit).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            match fault.remedy {
                // At most once per call: a server that rejects both fields would be asked forever.
                Remedy::OtherLimitField if !renamed => {
                    renamed = true;
                    self.target.refused(limit);
                }
                Remedy::Pause => {
                    let Some(pause) = self.pause(retries, fault.failure.retry_after_ms) else {
                        return Err(tried(fault.failure, retries + 1));
                    };
                    retries += 1;
                    tracing::debug!(
                        purpose = self.asked.purpose(),
                        kind = ?fault.failure.kind,
                        pause_ms = pause.as_millis() as u64,
                        retries,
                        "retrying the model call"
                    );
                    sleep(pause).await;
                }
                Remedy::None | Remedy::OtherLimitField => return Err(fault.failure),
            }
        }
    }

    /// Returns how long to wait before the next request. Returns `None` if the call should give up:
    /// it has no retry left, or the pause is too long or would end after the deadline.
    fn pause(&self, retries: u32, retry_after_ms: Option<u64>) -> Option<Duration> {
        if retries >= RETRIES {
            return None;
        }
        let pause = match retry_after_ms {
            Some(asked) => Duration::from_millis(asked),
            None => jittered(FIRST_PAUSE * 2u32.pow(retries)),
        };
        let fits = pause <= LONGEST_PAUSE && Instant::now() + pause < self.deadline;
        fits.then_some(pause)
    }

    /// Sends one request and reads the answer.
    ///
    /// # Errors
    /// Returns a [`Fault`] if there is no usable answer.
    async fn ask(&self, limit: LimitField) -> Result<ModelAnswer, Fault> {
        let endpoint = &self.target.endpoint;
        let left = self.deadline.saturating_duration_since(Instant::now());
        let response = self
            .http_request(limit)
            .timeout(self.timeout.min(left))
            .send()
            .await
            .map_err(|error| Fault::from_transport(endpoint, &error))?;
        let status = response.status();
        if status.is_redirection() {
            return Err(redirected(endpoint, &response));
        }
        if !status.is_success() {
            return Err(self.rejected(response, limit).await);
        }
        self.read_answer(response, limit).await
    }

    /// Builds the HTTP request with its headers and body. `limit` has an effect only on chat
    /// completions that are built here.
    fn http_request(&self, limit: LimitField) -> RequestBuilder {
        let endpoint = &self.target.endpoint;
        let (model, mut headers) = (endpoint.model(), endpoint.headers());
        if endpoint.api_format() == ApiFormat::Anthropic {
            let version = HeaderValue::from_static(anthropic::VERSION);
            // The agent's own headers may name a version already, which its request body was
            // written for.
            headers.entry("anthropic-version").or_insert(version);
        }
        let post = self
            .client
            .post(endpoint.url().to_string())
            .headers(headers);
        match (&self.asked, endpoint.api_format()) {
            (Asked::Fresh(request), ApiFormat::OpenAi) => {
                post.json(&openai::request_body(model, request, limit))
            }
            (Asked::Fresh(request), ApiFormat::Anthropic) => {
                post.json(&anthropic::request_body(model, request))
            }
            (Asked::Fresh(request), ApiFormat::Gemini) => post.json(&gemini::request_body(request)),
            (Asked::Continued(body), _) => post
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone()),
        }
    }

    /// Reads the body of a response with an error status and turns it into a fault.
    async fn rejected(&self, mut response: Response, limit: LimitField) -> Fault {
        let status = response.status().as_u16();
        let retry_after_ms = retry_after_ms(response.headers());
        let mut body = Vec::new();
        // The status is enough to judge the fault, so a body that breaks off is used as far as it
        // arrived.
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_ERROR {
                body.truncate(MAX_ERROR);
                break;
            }
        }
        let rejection = Rejection {
            status,
            retry_after_ms,
            body: &String::from_utf8_lossy(&body),
        };
        Fault::from_rejection(&self.target.endpoint, &rejection, limit, self.mask)
    }

    /// Reads the body of a successful response and the answer in it.
    ///
    /// # Errors
    /// Returns a [`Fault`] if the body is too large, is not JSON, or holds an error or an unusable
    /// answer.
    async fn read_answer(
        &self,
        mut response: Response,
        limit: LimitField,
    ) -> Result<ModelAnswer, Fault> {
        let endpoint = &self.target.endpoint;
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| Fault::from_transport(endpoint, &error))?
        {
            // Checked for each chunk, so that an endless body does not fill the memory.
            if body.len() + chunk.len() > MAX_ANSWER {
                let what = format!("the answer is larger than {} MiB", MAX_ANSWER >> 20);
                return Err(Fault::new(endpoint, FailureKind::Other, &what));
            }
            body.extend_from_slice(&chunk);
        }
        // Half of a surrogate pair or a byte that is no UTF-8 costs a character, not the answer.
        let body = String::from_utf8_lossy(&body);
        let answer = parse_json(&body).map_err(|error| {
            let seen = quote(endpoint, &body, self.mask);
            let what = format!("the answer is not JSON ({error}): \"{seen}\"; check `base_url`");
            Fault::new(endpoint, FailureKind::Other, &what)
        })?;
        // OpenRouter reports an error of the upstream provider in a response with status 200.
        if let Some(error) = answer.get("error").filter(|error| !error.is_null()) {
            let code = error["code"]
                .as_u64()
                .and_then(|code| u16::try_from(code).ok());
            let rejection = Rejection {
                status: code.filter(|code| (400..600).contains(code)).unwrap_or(0),
                retry_after_ms: retry_after_ms(response.headers()),
                body: &body,
            };
            return Err(Fault::from_rejection(
                endpoint, &rejection, limit, self.mask,
            ));
        }
        let (usage, reply) = match endpoint.api_format() {
            ApiFormat::OpenAi => (&answer["usage"], openai::read(&answer)),
            ApiFormat::Anthropic => (&answer["usage"], anthropic::read(&answer)),
            ApiFormat::Gemini => (&answer["usageMetadata"], gemini::read(&answer)),
        };
        let usage = known_usage(usage).unwrap_or_default();
        // An answer that cannot be used is charged for, too.
        self.used.add(endpoint.model(), usage);
        let reply =
            reply.map_err(|unusable| Fault::from_unusable(endpoint, &unusable, self.mask))?;
        Ok(ModelAnswer::new(
            reply.text,
            reply.model.unwrap_or_else(|| endpoint.model().to_owned()),
        )
        .input_tokens(usage.input_tokens)
        .output_tokens(usage.output_tokens))
    }
}

/// Adds the number of attempts to the failure's message if there was more than one.
fn tried(mut failure: ModelFailure, requests: u32) -> ModelFailure {
    if requests > 1 {
        failure.message = format!("{} (asked {requests} times)", failure.message);
    }
    failure
}

/// Returns the fault for a redirect. The message names only the origin of the new address, because
/// its path or query may hold secrets.
fn redirected(endpoint: &Endpoint, response: &Response) -> Fault {
    let target = response
        .headers()
        .get(LOCATION)
        .and_then(|location| location.to_str().ok())
        .and_then(|location| {
            Url::parse(&endpoint.url().to_string())
                .ok()?
                .join(location)
                .ok()
        })
        .map_or_else(
            || "elsewhere".to_owned(),
            |url| url.origin().ascii_serialization(),
        );
    let status = response.status();
    let status = StatusCode::as_u16(&status);
    let what = format!(
        "HTTP {status}, a redirect to {target}; redirects are not followed, because the key would go along: \
         set `base_url` to the address itself"
    );
    Fault::new(endpoint, FailureKind::Other, &what)
}

/// Returns the pause that a server asks for, in milliseconds: from `retry-after-ms` (OpenAI), or
/// from `retry-after` in seconds. A date in `retry-after` is ignored, and the default pause
/// applies.
fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let number = |name: &str| -> Option<f64> {
        let value: f64 = headers.get(name)?.to_str().ok()?.trim().parse().ok()?;
        (value.is_finite() && value >= 0.0).then_some(value)
    };
    number("retry-after-ms")
        .or_else(|| number("retry-after").map(|seconds| seconds * 1000.0))
        .map(|ms| ms.ceil() as u64)
}

/// Shortens a pause at random, by up to half, so that calls that failed together do not retry
/// together.
fn jittered(pause: Duration) -> Duration {
    // A new hash state is the only source of randomness in the standard library, and good enough
    // for this.
    let chance = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
    pause.mul_f64(0.5 + chance / 2.0)
}
