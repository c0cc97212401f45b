use super::*;
use contexture::engines::Source;
use contexture::prompt_cache::Ttl;
use contexture::replay::{Prompts, Work};

fn row(engine: &str, prompt_tokens: u64, work: Option<Work>) -> Row {
    let prompts = Prompts {
        requests: 40,
        overflows: u64::from(work.is_none()) * 7,
        peak_prompt_tokens: prompt_tokens / 20,
        prompt_tokens,
        cached_tokens: prompt_tokens / 4 * 3,
        written_tokens: prompt_tokens / 4,
        ..Prompts::default()
    };
    let source = work.as_ref().map(|_| Source::Builtin);
    Row::new(
        engine,
        source,
        prompts,
        work,
        &Prices::sonnet(Ttl::FiveMinutes),
    )
}

fn report(rows: Vec<Row>) -> Report {
    let conversation = ConversationReport {
        input: "s.jsonl".into(),
        number: 1,
        messages: 1_090,
        requests: 50,
        model: "claude-sonnet-4-5".into(),
        context_length: 200_000,
        unseen_tokens: 26_798,
        scale: 1.0,
        rows,
    };
    let ttl = CacheTtl::FiveMinutes;
    Report::new(Prices::sonnet(ttl.at_first()), ttl, vec![conversation])
}

#[test]
fn the_table_reads_well_in_100_columns() {
    let work = Work {
        compactions: 12,
        model_calls: 14,
        engine_ms: 1_530.0,
        worst_turn_ms: 31.4,
        ..Work::default()
    };
    let text = render(&report(vec![
        row("recorded", 40_000_000, None),
        row("none", 4_000_000, None),
        row("compressor", 400_000, Some(work)),
    ]));
    let expected = "\
50 requests in 1 conversation of 1,090 messages, window of 200,000 tokens (claude-sonnet-4-5)

            compac-  model  over-       peak       mean  all prompts    from           time in  worst
engine        tions  calls  flows     prompt     prompt       tokens   cache     cost   engine   turn
recorded          –      –      7  2,000,000  1,000,000   40,000,000  75.0 %   $46.50        –      –
none              –      –      7    200,000    100,000    4,000,000  75.0 %    $4.65        –      –
compressor       12     14      0     20,000     10,000      400,000  75.0 %  $0.4650    1.5 s  31 ms

cost: of the prompts, at $3.00 a million tokens, $0.30 read from the prompt cache, $3.75 written
to it (list prices of Claude Sonnet). The cache expires after 5 minutes without use.
Answers and the engines' own model calls are not included.
";
    assert!(text.starts_with(expected), "{text}");
    assert!(
        text.contains("which covers 40 of the 50 requests"),
        "{text}"
    );
    assert!(text.contains("26,798 tokens of system prompt"), "{text}");
}

#[test]
fn money_has_cents_or_hundredths_of_them() {
    assert_eq!(dollars(0.0), "$0.0000");
    assert_eq!(dollars(0.010_339_8), "$0.0103");
    assert_eq!(dollars(1.0), "$1.00");
    assert_eq!(dollars(12_345.678), "$12,345.68");
    assert!(
        prices(
            &Prices {
                input: 5.0,
                cached: 0.125,
                write: 6.25,
                write_long: 10.0
            },
            CacheTtl::OneHour
        )
        .contains("$5.00 a million tokens, $0.125 read from the prompt cache, $6.25 written")
    );
}

#[test]
fn nothing_that_is_not_there_is_explained() {
    let mut bare = report(vec![row("none", 0, None)]);
    bare.totals[0].prompts.overflows = 0;
    bare.conversations[0].unseen_tokens = 0;
    let text = render(&bare);
    assert!(
        !text.contains("recorded:") && !text.contains("overflows:"),
        "{text}"
    );
    assert!(!text.contains("does not show"), "{text}");
}
