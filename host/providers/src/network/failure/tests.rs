#![allow(clippy::unwrap_used, clippy::expect_used)]
use proptest::prelude::*;

use super::*;
use crate::settings::{Credentials, Provider, Secret};

const KEY: &str = "sk-abcdefghijklmnopqrstuvwxyz";

fn endpoint() -> Endpoint {
    Endpoint::new(
        Provider::OpenAi,
        None,
        "m",
        Some(&Credentials::Key(Secret::new(KEY))),
        &|_| None,
    )
    .unwrap()
}

fn fault(status: u16, body: &str) -> Fault {
    let rejection = Rejection {
        status,
        retry_after_ms: None,
        body,
    };
    Fault::from_rejection(&endpoint(), &rejection, LimitField::MaxTokens, |text| {
        text.into()
    })
}

#[test]
fn every_dialect_of_refusal_is_understood() {
    use FailureKind::*;
    for (status, body, kind) in [
        (
            401,
            r#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#,
            Auth,
        ),
        (
            403,
            r#"{"type":"error","error":{"type":"permission_error","message":"no"}}"#,
            Auth,
        ),
        (
            402,
            r#"{"error":{"message":"Insufficient credits","code":402}}"#,
            Auth,
        ),
        (
            400,
            r#"{"error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
            Auth,
        ),
        (
            403,
            r#"{"error":{"code":"model_not_found","message":"Project has no access to model x"}}"#,
            UnknownModel,
        ),
        (
            403,
            r#"{"error":{"message":"requires moderation, your input was flagged","code":403}}"#,
            Refused,
        ),
        (
            404,
            r#"{"error":"model \"x\" not found, try pulling it first"}"#,
            UnknownModel,
        ),
        (
            404,
            r#"{"object":"error","message":"The model `x` does not exist.","code":404}"#,
            UnknownModel,
        ),
        (404, "<html>404</html>", UnknownModel),
        (
            400,
            r#"{"error":{"message":"x is not a valid model ID","code":400}}"#,
            UnknownModel,
        ),
        (
            400,
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}"#,
            TooLong,
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
            TooLong,
        ),
        (
            400,
            r#"{"error":{"code":400,"type":"exceed_context_size_error","message":"the request exceeds the available context size"}}"#,
            TooLong,
        ),
        (
            400,
            r#"{"error":"Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context length of only 32768 tokens"}"#,
            TooLong,
        ),
        (
            400,
            r#"{"detail":"Input length and max_tokens exceed context limit"}"#,
            TooLong,
        ),
        (
            413,
            r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
            TooLong,
        ),
        (
            400,
            r#"{"error":{"code":"content_filter","message":"filtered"}}"#,
            Refused,
        ),
        (429, r#"{"error":{"message":"slow down"}}"#, RateLimited),
        (
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            Overloaded,
        ),
        (503, "", Overloaded),
        (408, "", Timeout),
        (
            400,
            r#"{"error":{"message":"temperature must be at most 2"}}"#,
            Other,
        ),
        (418, "[]", Other),
        // Words of the conversation that a server echoes do not override a clear status.
        (401, r#"{"error":{"message":"prompt is too long"}}"#, Auth),
        (
            500,
            r#"{"error":{"message":"prompt is too long"}}"#,
            Overloaded,
        ),
    ] {
        let failure = fault(status, body).failure;
        assert_eq!(failure.kind, kind, "{status} {body}: {failure}");
    }
}

#[test]
fn only_what_may_pass_is_asked_again() {
    for status in [429, 500, 503, 529] {
        assert_eq!(fault(status, "").remedy, Remedy::Pause);
    }
    for status in [400, 401, 403, 404, 408, 413] {
        assert_eq!(fault(status, "").remedy, Remedy::None);
    }
    let quota = r#"{"error":{"code":"insufficient_quota","message":"You exceeded your quota"}}"#;
    assert_eq!(fault(429, quota).remedy, Remedy::None);
    let field = r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."}}"#;
    assert_eq!(fault(400, field).remedy, Remedy::OtherLimitField);
    let size = r#"{"error":{"message":"max_tokens is too large: 100000"}}"#;
    assert_eq!(fault(400, size).remedy, Remedy::None);
}

#[test]
fn an_auth_failure_names_provider_and_variable() {
    let with = |key: Option<&str>| {
        let env = |_: &str| key.map(str::to_owned);
        let endpoint =
            Endpoint::new(Provider::OpenAi, Some("http://h/v1"), "m", None, &env).unwrap();
        Fault::new(&endpoint, FailureKind::Auth, "HTTP 401")
            .failure
            .message
    };
    assert!(with(Some("k")).contains("openai did not accept OPENAI_API_KEY"));
    assert!(with(None).contains("set OPENAI_API_KEY"));
}

proptest! {
    #[test]
    fn no_body_breaks_a_message_or_leaks_the_key(
        status in 0u16..700,
        before in ".{0,400}",
        after in "\\PC*",
    ) {
        for body in [
            format!("{before}{KEY}{after}"),
            serde_json::json!({ "error": { "message": format!("{before}{KEY}{after}") } }).to_string(),
            serde_json::json!({ "x": [before, KEY] }).to_string(),
        ] {
            let message = fault(status, &body).failure.message;
            prop_assert!(!message.contains(KEY));
            prop_assert!(!message.contains('\n'));
            prop_assert!(message.chars().count() < QUOTED_CHARS + 400);
        }
    }
}
