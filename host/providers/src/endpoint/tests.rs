#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

fn address(provider: Provider, base: &str) -> String {
    api_url(provider, base, "m").unwrap().to_string()
}

#[test]
fn every_habit_of_writing_a_base_url_leads_to_the_call() {
    for base in [
        "http://localhost:11434/v1",
        "http://localhost:11434/v1/",
        "http://localhost:11434/v1/chat/completions",
    ] {
        assert_eq!(
            address(Provider::OpenAi, base),
            "http://localhost:11434/v1/chat/completions"
        );
    }
    for base in [
        "https://api.anthropic.com",
        "https://api.anthropic.com/v1/",
        "https://api.anthropic.com/v1/messages",
    ] {
        assert_eq!(
            address(Provider::Anthropic, base),
            "https://api.anthropic.com/v1/messages"
        );
    }
    let host = "https://generativelanguage.googleapis.com";
    for base in [host, &format!("{host}/v1beta/")] {
        let call = format!("{host}/v1beta/models/m:generateContent");
        assert_eq!(address(Provider::Google, base), call);
    }
    let vertex = "https://h/v1/projects/p/locations/l/publishers/google";
    for base in [
        vertex,
        &format!("{vertex}/models/m:streamGenerateContent?alt=sse"),
    ] {
        let call = format!("{vertex}/models/m:generateContent");
        assert_eq!(address(Provider::Google, base), call);
    }
    assert_eq!(
        address(Provider::OpenAi, "https://a.example/x?api-version=1#f"),
        "https://a.example/x/chat/completions?api-version=1"
    );
}

#[test]
fn addresses_that_cannot_be_called_are_refused_without_repeating_a_password() {
    for base in ["", "localhost:1234", "file:///etc/passwd", "not a url"] {
        assert!(api_url(Provider::OpenAi, base, "m").is_err(), "{base}");
    }
    let error = api_url(Provider::Nous, "https://me:hunter2@host/v1", "m").unwrap_err();
    assert!(error.to_string().contains("NOUS_API_KEY"));
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[test]
fn this_machine_is_told_from_others() {
    let is_loopback = |base| {
        Endpoint::new(Provider::OpenAi, Some(base), "m", None, &|_| None)
            .unwrap()
            .is_loopback()
    };
    for base in [
        "http://localhost/v1",
        "http://127.3.2.1:80/",
        "http://[::1]:8000",
    ] {
        assert!(is_loopback(base), "{base}");
    }
    for base in [
        "http://localhost.example",
        "http://192.168.0.2",
        "http://127.example",
    ] {
        assert!(!is_loopback(base), "{base}");
    }
}
