//! Rules in Japanese.

use crate::rules::words::Table;

pub(super) fn states_rule(japanese: &Table, text: &str) -> bool {
    if japanese.is_in("said", text) {
        return false;
    }
    // An edit in one place.
    if text.contains("行目") && (text.contains("だけ") || text.contains("のみ")) {
        return false;
    }
    let end = text.trim_end_matches(['。', '！', '!', '.', ' ']);
    let end = without_thanks(japanese, end);
    if end.ends_with("かな") {
        return false;
    }
    let is_order =
        || japanese.ends("orders", end) || text.contains("てください") || text.contains("こと");
    let is_labelled = || {
        let labelled = ["注意", "重要"]
            .iter()
            .find_map(|label| text.strip_prefix(label));
        labelled.is_some_and(|rest| rest.starts_with([':', '：', '、']) && rest.len() > 12)
            && !japanese.is_in("news", text)
    };
    japanese.matches("patterns", end)
        || end.contains("ないで、") && !end.ends_with('た')
        || !japanese.is_in("events", text)
            && (text.contains("限り") || is_labelled() || japanese.is_in("weak", end) && is_order())
}

/// Returns a polite request without the words that it would please the user: "…していただけると助かります".
fn without_thanks<'a>(japanese: &Table, text: &'a str) -> &'a str {
    let gives = japanese.all("gives").iter();
    let thanks = gives.filter_map(|gives| text.find(gives)).min();
    match thanks.map(|at| text.split_at(at)) {
        Some((order, thanks))
            if order.ends_with(['て', 'で']) && japanese.is_in("thanks", thanks) =>
        {
            order
        }
        _ => text,
    }
}
