use super::*;

#[test]
fn the_message_of_an_error_is_found_in_each_form() {
    for body in [
        r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#,
        r#"{"error": "Overloaded"}"#,
        r#"{"message": "Overloaded"}"#,
        r#"{"detail": "Overloaded"}"#,
        " Overloaded\n",
    ] {
        assert_eq!(message(body.as_bytes()), "Overloaded", "{body}");
    }
}

/// What the log keeps of an error with this body.
fn kept(body: &str) -> String {
    let log = FailureLog::default();
    log.push(FailedRequest {
        at_ms: 0,
        session: None,
        tenant: None,
        endpoint: "chat",
        status: 401,
        error: message(body.as_bytes()),
        ms: 0.0,
    });
    log.rows(|_| true).remove(0).error
}

#[test]
fn an_error_is_kept_short_and_without_the_key_that_it_quotes() {
    assert_eq!(kept(&"é".repeat(2_000)).len(), MAX_MESSAGE_BYTES);
    let key = format!("sk-proj-{}", "Ab3d5F7h".repeat(6));
    for words in 0..MAX_MESSAGE_BYTES / 5 {
        let error = format!("{}Incorrect API key provided: {key}", "word ".repeat(words));
        let body = serde_json::json!({"error": {"message": error}}).to_string();
        for body in [error, body] {
            assert!(!kept(&body).contains("Ab3d"), "{body}");
        }
    }
}
