//! The chart of the README: the prompt of each request of a recorded session, without an engine and with the built-in
//! one. It is drawn from the report of `contexture replay`, in light and in dark colours.

use std::fmt::Write as _;

use contexture_engine_api::grouped;
use contexture_tests::{Home, repository};
use serde_json::Value;

/// The size of the picture, and the part of it that the lines take.
const SIZE: (f64, f64) = (860.0, 318.0);
const LEFT: f64 = 64.0;
const RIGHT: f64 = 660.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 284.0;
const STEP: u64 = 50_000;

struct Colors {
    name: &'static str,
    text: &'static str,
    muted: &'static str,
    grid: &'static str,
    without: &'static str,
    with: &'static str,
}

const LIGHT: Colors = Colors {
    name: "light",
    text: "#1f2328",
    muted: "#59636e",
    grid: "#d1d9e0",
    without: "#bc4c00",
    with: "#0969da",
};
const DARK: Colors = Colors {
    name: "dark",
    text: "#f0f6fc",
    muted: "#9198a1",
    grid: "#3d444d",
    without: "#f0883e",
    with: "#58a6ff",
};

/// Replays the session of Claude Code and writes `docs/images/replay-light.svg` and `replay-dark.svg`.
pub(crate) fn write(home: &Home) {
    let (folder, _, window) = super::SETS[0];
    let report = super::replayed(home, folder, window, &["compressor"]);
    let session = &report["conversations"][0];
    for colors in [LIGHT, DARK] {
        let path = repository().join(format!("docs/images/replay-{}.svg", colors.name));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, draw(session, &colors)).unwrap();
        println!("{}", path.display());
    }
}

fn draw(session: &Value, colors: &Colors) -> String {
    let rows = session["rows"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["engine"] == name).unwrap();
    let window = session["context_length"].as_u64().unwrap();
    let requests = session["requests"].as_u64().unwrap();
    let (without, with) = (row("none"), row("compressor"));
    let most = without["peak_prompt_tokens"]
        .as_u64()
        .unwrap()
        .div_ceil(STEP)
        * STEP;
    let x = |request: u64| LEFT + (RIGHT - LEFT) * (request - 1) as f64 / (requests - 1) as f64;
    let y = |tokens: u64| BOTTOM - (BOTTOM - TOP) * tokens as f64 / most as f64;
    let (width, height) = SIZE;
    let Colors {
        text, muted, grid, ..
    } = colors;
    let title = format!(
        "A Claude Code session of {} messages: tokens of each prompt",
        session["messages"]
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n<title>{title}</title>\n"
    );
    let mut label = |at: (f64, f64), rest: &str, color: &str, words: &str| {
        let (x, y) = at;
        writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{color}\"{rest}>{words}</text>"
        )
        .unwrap();
    };
    label(
        (LEFT, 24.0),
        " font-size=\"15\" font-weight=\"600\"",
        text,
        &title,
    );
    let end = " text-anchor=\"end\"";
    for tokens in (0..=most).step_by(STEP as usize) {
        label((LEFT - 8.0, y(tokens) + 4.0), end, muted, &grouped(tokens));
    }
    label((LEFT, BOTTOM + 24.0), "", muted, "request 1");
    label((RIGHT, BOTTOM + 24.0), end, muted, &grouped(requests));
    let beside = RIGHT + 12.0;
    label(
        (beside, y(window) + 4.0),
        "",
        muted,
        &format!("window of {}", grouped(window)),
    );
    for (row, name, color) in [
        (without, "without an engine", colors.without),
        (with, "with Contexture", colors.with),
    ] {
        let at = y(*prompts(row).last().unwrap()) + 4.0;
        let cost = format!("prompts cost ${:.2}", row["cost_usd"].as_f64().unwrap());
        let fit = match row["overflows"].as_u64().unwrap() {
            0 => "every request fits".to_owned(),
            none => format!("{} of {requests} do not fit", grouped(none)),
        };
        label((beside, at), " font-weight=\"600\"", color, name);
        label((beside, at + 17.0), "", muted, &cost);
        label((beside, at + 34.0), "", muted, &fit);
    }
    let mut line = |from: u64, color: &str, rest: &str| {
        let y = y(from);
        writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"{color}\"{rest}/>"
        )
        .unwrap();
    };
    for tokens in (0..=most).step_by(STEP as usize) {
        line(tokens, grid, "");
    }
    line(
        window,
        muted,
        " stroke-dasharray=\"6 4\" stroke-width=\"1.5\"",
    );
    for (row, color) in [(without, colors.without), (with, colors.with)] {
        let points: Vec<_> = (prompts(row).into_iter().zip(1..))
            .map(|(tokens, request)| format!("{:.1},{:.1}", x(request), y(tokens)))
            .collect();
        writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2.5\" stroke-linejoin=\"round\"/>",
            points.join(" ")
        )
        .unwrap();
    }
    svg.push_str("</svg>\n");
    svg
}

/// The tokens of each prompt of a row.
fn prompts(row: &Value) -> Vec<u64> {
    let tokens = row["each_prompt_tokens"].as_array().unwrap().iter();
    tokens.map(|tokens| tokens.as_u64().unwrap()).collect()
}
