
/// What stands in place of messages: a line for each with who said it, which tools it calls and how it begins.
fn outline(messages: &[MessageView<'_>]) -> String {
    const LINES: usize = 60;
    let mut lines = vec!["Earlier messages, by how they begin:".to_owned()];
    let left_out = messages.len().saturating_sub(LINES);
    // An earlier summary comes first, and is carried on.
    for (at, message) in messages.iter().enumerate() {
        let chars = if at == 0 { 2_000 } else { 120 };
        if (1..=left_out).contains(&at) {
            continue;
        }
        let words: Vec<_> = message.text().split_whitespace().collect();
        let words: String = words.join(" ").chars().take(chars).collect();
        let tools: Vec<_> = message.tool_calls().iter().map(|call| call.name()).collect();
        lines.push(format!("- {} {}: {words}", message.role(), tools.join(" ")));
    }
    if left_out > 0 {
        lines.push(format!("({left_out} more messages are not listed.)"));
    }
    lines.join("\n")
}
