//! Traces: what `contexture serve` sends to an OpenTelemetry collector.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use cli_support::Home;
use contexture_provider_simulator::{Answer, Simulator, address_in};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use serde_json::json;

/// A collector: takes OTLP over HTTP, and keeps the bodies of the requests.
struct Collector {
    url: String,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bodies);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || Self::answer(stream.unwrap(), &kept));
            }
        });
        Self { url, bodies }
    }

    fn answer(mut stream: TcpStream, kept: &Mutex<Vec<Vec<u8>>>) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head).unwrap_or(0) == 0 {
                    return;
                }
            }
            let head = head.to_ascii_lowercase();
            assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
            assert!(
                head.contains("content-type: application/x-protobuf"),
                "{head}"
            );
            assert!(head.contains("x-collector-key: k1"), "{head}");
            let (_, length) = head.split_once("content-length: ").unwrap();
            let mut body = vec![0; length.lines().next().unwrap().parse().unwrap()];
            reader.read_exact(&mut body).unwrap();
            kept.lock().unwrap().push(body);
            let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer.as_bytes()).unwrap();
        }
    }

    /// All spans, and the attributes of their resource.
    fn spans(&self) -> (Vec<Seen>, BTreeMap<String, String>) {
        let (mut spans, mut resource) = (Vec::new(), BTreeMap::new());
        for body in self.bodies.lock().unwrap().iter() {
            let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
            for group in request.resource_spans {
                resource.extend(attributes(&group.resource.unwrap().attributes));
                let all = group.scope_spans.into_iter().flat_map(|scope| scope.spans);
                spans.extend(all.map(|span| Seen {
                    attributes: attributes(&span.attributes).into_iter().collect(),
                    span,
                }));
            }
        }
        (spans, resource)
    }
}

fn attributes(all: &[opentelemetry_proto::tonic::common::v1::KeyValue]) -> Vec<(String, String)> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        Value::BoolValue(flag) => flag.to_string(),
        other => format!("{other:?}"),
    };
    let pair = |one: &opentelemetry_proto::tonic::common::v1::KeyValue| {
        let value = one.value.as_ref().and_then(|value| value.value.as_ref());
        let is_number = [
            "gen_ai.usage.",
            "contexture.compaction.tokens",
            "server.port",
            "http.response.status_code",
        ];
        let is_number = is_number.iter().any(|start| one.key.starts_with(start));
        assert_eq!(
            is_number,
            matches!(value, Some(Value::IntValue(_))),
            "{one:?}"
        );
        (one.key.clone(), text(value.unwrap()))
    };
    all.iter().map(pair).collect()
}

/// A span with its attributes as text.
#[derive(Debug)]
struct Seen {
    span: Span,
    attributes: BTreeMap<String, String>,
}

impl Seen {
    fn get(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Serving(Child, String, BufReader<std::process::ChildStderr>);

impl Serving {
    fn start(home: &Home, env: &[(&str, &str)]) -> Self {
        let mut child = home
            .command(["serve", "--listen", "127.0.0.1:0"])
            .envs(env.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let address = address_in(&mut stderr);
        Self(child, address, stderr)
    }

    /// Sends a request for Anthropic's API with these header lines.
    fn ask(&self, body: &str, header: &str) -> String {
        let mut stream = TcpStream::connect(&self.1).unwrap();
        let request = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nx-api-key: k\r\nanthropic-version: \
             2023-06-01\r\n{header}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.1,
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Ends it as a supervisor does, and returns its log.
    fn end(mut self) -> String {
        let id = rustix::process::Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
        let mut log = String::new();
        self.2.read_to_string(&mut log).unwrap();
        log
    }
}

fn home(provider: &Simulator, telemetry: &str) -> Home {
    let home = Home::new();
    let base = provider.base_url();
    let config = format!(
        "upstream: {{anthropic: {{base_url: \"{base}\"}}}}\ncontext: {{engine: lcm}}\nmodel: {{context_length: 20000}}\n\
         compression: {{threshold: 0.5, timing: threshold}}\n{telemetry}"
    );
    home.put("home/config.yaml", &config);
    home
}

/// A conversation that has to be compacted, streamed or not.
fn long(stream: bool) -> String {
    let mut messages = Vec::new();
    for number in 0..12 {
        let text = format!("Plum {number} {}", "pudding ".repeat(900));
        messages.push(json!({"role": "user", "content": text}));
        messages.push(json!({"role": "assistant", "content": "Yes."}));
    }
    messages.push(json!({"role": "user", "content": "And which plum was it?"}));
    let body = json!({
        "model": "claude-sonnet-4-5", "max_tokens": 100, "messages": messages, "stream": stream,
    });
    body.to_string()
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

#[test]
fn a_request_is_one_trace_that_names_its_steps_and_holds_no_text() {
    for stream in [true, false] {
        let (provider, collector) = (Simulator::start(), Collector::start());
        provider.answer_with(|_| Answer::text("Yes."));
        let telemetry = format!(
            "gateway: {{telemetry: {{endpoint: \"{}/\"}}}}\n",
            collector.url
        );
        let home = home(&provider, &telemetry);
        let env = [("OTEL_EXPORTER_OTLP_HEADERS", "x-collector-key=k1")];
        let serving = Serving::start(&home, &env);
        provider.script([
            Answer::call("lcm_grep", json!({"pattern": "Plum 3"})),
            Answer::text("The third."),
        ]);
        let header = format!(
            "traceparent: 00-{TRACE}-{PARENT}-01\r\nx-request-id: r1\r\nx-contexture-session: plums\r\n"
        );
        let answer = serving.ask(&long(stream), &header);
        assert!(answer.contains(" third."), "{answer}");
        serving.end();

        let (spans, resource) = collector.spans();
        assert_eq!(resource["service.name"], "contexture");
        assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"));
        let named = |name: &str| -> Vec<&Seen> {
            spans.iter().filter(|seen| seen.span.name == name).collect()
        };
        let names: Vec<&str> = spans.iter().map(|seen| seen.span.name.as_str()).collect();
        let one = |name: &str| match named(name)[..] {
            [one] => one,
            _ => panic!("{name} is not there once: {names:?}"),
        };
        for seen in &spans {
            assert_eq!(hex(&seen.span.trace_id), TRACE, "{}", seen.span.name);
            assert!(seen.span.end_time_unix_nano >= seen.span.start_time_unix_nano);
        }
        let root = one("POST messages");
        assert_eq!(root.span.kind(), SpanKind::Server);
        assert_eq!(hex(&root.span.parent_span_id), PARENT);
        for (key, value) in [
            ("http.request.method", "POST"),
            ("url.path", "/v1/messages"),
            ("http.response.status_code", "200"),
            ("gen_ai.conversation.id", "plums"),
            ("contexture.outcome", "managed"),
            ("request_id", "r1"),
        ] {
            assert_eq!(root.get(key), value, "{key}");
        }
        let is_child = |child: &Seen, parent: &Seen| {
            assert_eq!(
                hex(&child.span.parent_span_id),
                hex(&parent.span.span_id),
                "{} below {}",
                child.span.name,
                parent.span.name
            );
        };
        is_child(one("ingest"), root);
        let hidden = one("hidden round");
        is_child(hidden, root);
        let turns = named("turn");
        assert_eq!(turns.len(), 2, "{names:?}");
        let turn = turns
            .iter()
            .find(|turn| turn.span.parent_span_id == root.span.span_id)
            .unwrap();
        assert_eq!(turn.get("contexture.compaction.outcome"), "compacted");
        let tokens = |key: &str| turn.get(key).parse::<u64>().unwrap();
        assert!(
            tokens("contexture.compaction.tokens_before")
                > tokens("contexture.compaction.tokens_after")
        );
        let compacting = one("engine compress");
        is_child(compacting, turn);
        assert_eq!(compacting.get("contexture.engine"), "lcm");
        is_child(one("engine call_tool"), hidden);

        // A model call for each round, with what the provider reported.
        let calls = named("chat claude-sonnet-4-5");
        let said = provider.requests();
        assert_eq!((calls.len(), said.len()), (2, 2), "{names:?}");
        for call in &calls {
            is_child(call, root);
            assert_eq!(call.span.kind(), SpanKind::Client);
            for (key, value) in [
                ("gen_ai.operation.name", "chat"),
                ("gen_ai.provider.name", "anthropic"),
                ("gen_ai.request.model", "claude-sonnet-4-5"),
                ("gen_ai.conversation.id", "plums"),
            ] {
                assert_eq!(call.get(key), value, "{key}");
            }
        }
        let sum = |key: &str| -> u64 {
            calls
                .iter()
                .map(|call| call.get(key).parse::<u64>().expect(key))
                .sum()
        };
        let bill = provider.bill().usage;
        assert_eq!(sum("gen_ai.usage.cache_read.input_tokens"), bill.cache_read);
        assert_eq!(
            sum("gen_ai.usage.cache_creation.input_tokens"),
            bill.prompt() - bill.input - bill.cache_read
        );
        assert_eq!(sum("gen_ai.usage.input_tokens"), bill.prompt());
        assert_eq!(sum("gen_ai.usage.output_tokens"), bill.output);

        // The provider can go on with the trace.
        let requests = named("POST");
        assert_eq!(requests.len(), 2, "{names:?}");
        for (request, sent) in requests.iter().zip(&said) {
            assert_eq!(request.span.kind(), SpanKind::Client);
            assert!(
                calls
                    .iter()
                    .any(|call| call.span.span_id == request.span.parent_span_id)
            );
            assert_eq!(request.get("server.address"), "127.0.0.1");
            assert_eq!(request.get("http.response.status_code"), "200");
            let parent = format!("00-{TRACE}-{}-01", hex(&request.span.span_id));
            assert_eq!(sent.header("traceparent"), Some(parent.as_str()));
        }
        for body in collector.bodies.lock().unwrap().iter() {
            let text = String::from_utf8_lossy(body);
            assert!(
                !text.contains("pudding") && !text.contains("third"),
                "{text}"
            );
        }
    }
}

#[test]
fn a_client_that_is_not_sampled_is_not_traced_and_a_request_of_no_trace_begins_one() {
    let (provider, collector) = (Simulator::start(), Collector::start());
    provider.answer_with(|_| Answer::text("Yes."));
    let telemetry = format!(
        "gateway: {{telemetry: {{endpoint: \"{}\"}}}}\n",
        collector.url
    );
    let home = home(&provider, &telemetry);
    let env = [
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-collector-key=k1"),
        ("OTEL_SERVICE_NAME", "edge"),
    ];
    let serving = Serving::start(&home, &env);
    let body = r#"{"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}"#;
    serving.ask(body, &format!("traceparent: 00-{TRACE}-{PARENT}-00\r\n"));
    serving.ask(body, "");
    serving.end();
    let (spans, resource) = collector.spans();
    assert_eq!(resource["service.name"], "edge");
    let roots: Vec<&Seen> = spans
        .iter()
        .filter(|seen| seen.span.name == "POST messages")
        .collect();
    assert_eq!(roots.len(), 1);
    assert!(roots[0].span.parent_span_id.is_empty());
    assert!(spans.iter().all(|seen| hex(&seen.span.trace_id) != TRACE));
    let sent = provider.requests();
    let flags = |number: usize| {
        sent[number]
            .header("traceparent")
            .unwrap()
            .rsplit_once('-')
            .unwrap()
            .1
            .to_owned()
    };
    assert_eq!((flags(0), flags(1)), ("00".to_owned(), "01".to_owned()));
}

#[test]
fn nothing_is_sent_unasked_and_a_collector_that_is_away_costs_a_warning() {
    let (provider, collector) = (Simulator::start(), Collector::start());
    provider.answer_with(|_| Answer::text("Yes."));
    let body = r#"{"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}"#;
    // The environment of other programs may name a collector.
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str())];
    let quiet = home(&provider, "");
    let serving = Serving::start(&quiet, &env);
    assert!(serving.ask(body, "").contains("200 OK"));
    serving.end();
    assert!(collector.bodies.lock().unwrap().is_empty());
    assert_eq!(provider.requests()[0].header("traceparent"), None);

    let away = home(
        &provider,
        "gateway: {telemetry: {endpoint: \"http://127.0.0.1:9\"}}\n",
    );
    let serving = Serving::start(&away, &[("OTEL_BSP_SCHEDULE_DELAY", "50")]);
    for _ in 0..3 {
        assert!(serving.ask(body, "").contains("200 OK"));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let log = serving.end();
    assert_eq!(log.matches("spans are lost").count(), 1, "{log}");
    assert!(log.contains("gateway.telemetry.endpoint"), "{log}");
}
