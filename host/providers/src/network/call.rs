//! One model call: a request, its answer, and retries after transient faults.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use contexture_engine_api::{FailureKind, ModelAnswer, ModelFailure, ModelRequest};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::anthropic;
use super::failure::{Fault, Rejection, Remedy, quote};
use super::openai::{self, LimitField};
use crate::client::Mask;
use crate::endpoint::{Endpoint, Wire};

/// The number of retries after transient faults.
const RETRIES: u32 = 3;
/// The first pause; each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause that a server may ask for. If it asks for more, the call fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The largest answer that is read, in bytes. Real ones stay under a few hundred KiB.
const MAX_ANSWER: usize = 8 * 1024 * 1024;
/// The most that is read of an error's body, in bytes.
const MAX_ERROR: usize = 64 * 1024;

/// A model as the client calls it: the endpoint and what was learnt about it.
pub(super) struct Target {
    pub(super) endpoint: Endpoint,
    /// Whether the server wants the answer limit in the other field.
    other_limit_field: AtomicBool,
}

impl Target {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            other_limit_field: AtomicBool::new(false),
        }
    }

    /// OpenAI itself takes the new name for every model; others mostly know the old one.
    fn usual_limit_field(&self) -> LimitField {
        match self.endpoint.url().host() {
            Some("api.openai.com") => LimitField::MaxCompletionTokens,
            _ => LimitField::MaxTokens,
        }
    }

    fn limit_field(&self) -> LimitField {
        let usual = self.usual_limit_field();
        if self.other_limit_field.load(Ordering::Relaxed) {
            usual.other()
        } else {
            usual
        }
    }

    /// Remembers that the server rejects this field.
    fn refused(&self, limit: LimitField) {
        let other = limit == self.usual_limit_field();
        self.other_limit_field.store(other, Ordering::Relaxed);
    }
}

/// What is sent.
pub(super) enum Asked<'a> {
    /// Instructions and material; the secrets in them are masked.
    Fresh(&'a ModelRequest),
    /// The body of the agent's last request with a question at its end.
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

/// The inputs of one call.
pub(super) struct ModelCall<'a> {
    pub(super) client: &'a Client,
    pub(super) target: &'a Target,
    pub(super) asked: Asked<'a>,
    pub(super) mask: Mask,
    /// The time limit of one HTTP request.
    pub(super) timeout: Duration,
    /// The deadline of the call, pauses included.
    pub(super) deadline: Instant,
}

impl ModelCall<'_> {
    /// Retries until there is an answer, a permanent fault, or no time left.
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
                        "model call is tried again"
                    );
                    sleep(pause).await;
                }
                Remedy::None | Remedy::OtherLimitField => return Err(fault.failure),
            }
        }
    }

    /// How long to wait before the next request; `None` to give up.
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

    fn http_request(&self, limit: LimitField) -> RequestBuilder {
        let endpoint = &self.target.endpoint;
        let (model, mut headers) = (endpoint.model(), endpoint.headers());
        if endpoint.wire() == Wire::Anthropic {
            let version = HeaderValue::from_static(anthropic::VERSION);
            headers.entry("anthropic-version").or_insert(version);
        }
        let post = self
            .client
            .post(endpoint.url().to_string())
            .headers(headers);
        match (&self.asked, endpoint.wire()) {
            (Asked::Fresh(request), Wire::OpenAi) => {
                post.json(&openai::request_body(model, request, limit))
            }
            (Asked::Fresh(request), Wire::Anthropic) => {
                post.json(&anthropic::request_body(model, request))
            }
            (Asked::Continued(body), _) => post
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone()),
        }
    }

    async fn rejected(&self, mut response: Response, limit: LimitField) -> Fault {
        let status = response.status().as_u16();
        let retry_after_ms = retry_after_ms(response.headers());
        let mut body = Vec::new();
        // The status is enough, so a body that breaks off is used as far as it was received.
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
            if body.len() + chunk.len() > MAX_ANSWER {
                let what = format!("the answer is larger than {} MiB", MAX_ANSWER >> 20);
                return Err(Fault::new(endpoint, FailureKind::Other, &what));
            }
            body.extend_from_slice(&chunk);
        }
        let answer: Value = serde_json::from_slice(&body).map_err(|error| {
            let seen = quote(endpoint, &String::from_utf8_lossy(&body), self.mask);
            let what = format!("the answer is not JSON ({error}): \"{seen}\"; check `base_url`");
            Fault::new(endpoint, FailureKind::Other, &what)
        })?;
        // OpenRouter reports an upstream's error inside an answer of status 200.
        if let Some(error) = answer.get("error").filter(|error| !error.is_null()) {
            let code = error["code"]
                .as_u64()
                .and_then(|code| u16::try_from(code).ok());
            let rejection = Rejection {
                status: code.filter(|code| (400..600).contains(code)).unwrap_or(0),
                retry_after_ms: retry_after_ms(response.headers()),
                body: &String::from_utf8_lossy(&body),
            };
            return Err(Fault::from_rejection(
                endpoint, &rejection, limit, self.mask,
            ));
        }
        let reply = match endpoint.wire() {
            Wire::OpenAi => openai::read(&answer),
            Wire::Anthropic => anthropic::read(&answer),
        }
        .map_err(|unusable| Fault::from_unusable(endpoint, &unusable, self.mask))?;
        Ok(ModelAnswer::new(
            reply.text,
            reply.model.unwrap_or_else(|| endpoint.model().to_owned()),
        )
        .input_tokens(reply.input_tokens)
        .output_tokens(reply.output_tokens))
    }
}

/// The failure, with the number of attempts.
fn tried(mut failure: ModelFailure, requests: u32) -> ModelFailure {
    if requests > 1 {
        failure.message = format!("{} (asked {requests} times)", failure.message);
    }
    failure
}

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

/// The pause that a server asks for, in milliseconds: `retry-after-ms` (OpenAI), or `retry-after` in
/// seconds. Dates are not supported; then the default pause applies.
fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let number = |name: &str| -> Option<f64> {
        let value: f64 = headers.get(name)?.to_str().ok()?.trim().parse().ok()?;
        (value.is_finite() && value >= 0.0).then_some(value)
    };
    number("retry-after-ms")
        .or_else(|| number("retry-after").map(|seconds| seconds * 1000.0))
        .map(|ms| ms.ceil() as u64)
}

/// Random jitter: between half and all of a pause, so that calls that failed together do not retry
/// together.
fn jittered(pause: Duration) -> Duration {
    // A fresh hash state is the standard library's only source of randomness, and good enough here.
    let chance = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
    pause.mul_f64(0.5 + chance / 2.0)
}
