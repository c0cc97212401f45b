//! What a digest costs: 1,000 messages and 1.7 MB of text shaped like a coding session's, and a hundred
//! times as many messages.
#![allow(missing_docs)]

use contexture_digest::{Budget, Digest};
use contexture_engine_api::{MessageId, MessageView, ToolCallView};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// A session of rounds of four messages: a request or remark, a call, its result, a report.
struct Session {
    texts: Vec<String>,
    arguments: Vec<String>,
}

impl Session {
    fn new(messages: usize) -> Self {
        let mut texts = Vec::with_capacity(messages);
        let mut arguments = Vec::with_capacity(messages);
        for at in 0..messages {
            let round = at / 4;
            texts.push(match at % 4 {
                0 if round % 8 == 0 => format!("Please look at src/module_{round}/handler.rs next. Never touch the schema."),
                0 => format!("Reading on in `module_{round}`, because the handler of step {round} calls it."),
                1 => String::new(),
                2 => (0..66)
                    .map(|line| format!("{line:>6}→    let value_{} = self.load_{}(&request, options.timeout_ms)?; // keep the order of what was read\n", (line * 7 + round) % 900, line % 50))
                    .collect(),
                _ => format!("The handler in src/module_{round}/handler.rs waits for {round} ms, and commit {:07x} changed it.\n", 0xabc_0000 + round * 37),
            });
            arguments.push(if at % 8 == 1 {
                format!("{{\"file_path\": \"/repo/src/module_{round}/handler.rs\", \"offset\": {round}}}")
            } else {
                format!("{{\"command\": \"cargo test -p module_{round} -- --nocapture\", \"description\": \"Test module {round}\"}}")
            });
        }
        Self { texts, arguments }
    }

    fn bytes(&self) -> u64 {
        self.texts.iter().map(|text| text.len() as u64).sum()
    }

    fn with_views<T>(&self, run: impl FnOnce(&[MessageView<'_>]) -> T) -> T {
        let calls: Vec<[ToolCallView<'_>; 1]> = self
            .arguments
            .iter()
            .enumerate()
            .map(|(at, json)| {
                [ToolCallView::new(
                    "c",
                    if at % 8 == 1 { "Read" } else { "Bash" },
                    json,
                )]
            })
            .collect();
        let views: Vec<MessageView<'_>> = (0..self.texts.len())
            .map(|at| {
                let view =
                    |role| MessageView::new(MessageId(at as u64), role).with_text(&self.texts[at]);
                match at % 4 {
                    0 if at % 32 == 0 => view("user"),
                    1 => view("assistant").with_tool_calls(&calls[at]),
                    2 => view("tool").with_result_of("c", ""),
                    _ => view("assistant"),
                }
            })
            .collect();
        run(&views)
    }
}

fn digest(criterion: &mut Criterion) {
    for messages in [1_000, 100_000] {
        let session = Session::new(messages);
        let mut group = criterion.benchmark_group(format!("{messages} messages"));
        group
            .throughput(Throughput::Bytes(session.bytes()))
            .sample_size(20);
        session.with_views(|views| {
            group.bench_function("of", |bencher| bencher.iter(|| Digest::of(views, None)));
            let digest = Digest::of(views, None);
            group.bench_function("render 12,000 characters", |bencher| {
                bencher.iter(|| digest.render(Budget::chars(12_000)))
            });
            let summary = digest.render(Budget::chars(6_000));
            group.bench_function("missing_from", |bencher| {
                bencher.iter(|| digest.missing_from(&summary, Budget::chars(4_000)))
            });
        });
        group.finish();
    }
}

criterion_group!(benches, digest);
criterion_main!(benches);
