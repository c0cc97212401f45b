//! Rules in Japanese.

use std::sync::LazyLock;

use regex::RegexSet;

use super::patterns::set;
use super::words::contains;

static PATTERNS: LazyLock<RegexSet> = LazyLock::new(|| {
    const CHANGE: &str = "(?:変え|変更|修正|編集|消|削除|追加|作|移動|入れ|止め|更新|リネーム|置き換え|公開|マージ|プッシュ|デプロイ|コミット)";
    set(&[
        r"(?:ては|ちゃ)(?:いけ|なりません|ならない|だめ)|しないで|ないで(?:ください|下さい)|ないこと|禁止|するな",
        r"やめて|避けて|勝手に|(?:許可|承認)な[くし]|(?:確認して|聞いて)から|忘れ(?:ないで|ずに)",
        r"(?:だけ|のみ)を?使|今後は|これからは|これ以降|以降は|優先して|厳守|徹底して|ようにして",
        r"なければな(?:りません|らない)|すべきでは|べきではない|でください。必ず",
        r"(?:日本語|英語|中国語|ドイツ語|フランス語|敬語|敬体|常体)で(?:答|書|返|回答|説明|コメント)",
        r"(?:ないで|ないように)$|[^題常事更変由]なしで$|[はを][^、。]{1,8}ずに$|維持(?:して|すること)$",
        // A condition with a verb of change, and what to do then.
        &format!(
            "^(?:[^こそあ、。]|[こそあ][^のれ、。])*を[^、。]{{0,4}}{CHANGE}[^、。]{{0,4}}(?:たら|(?:とき|時|場合|前)に?は?)、?[^。]*(?:[てで]|ください|こと)$"
        ),
        r"[をは][^、。]{0,3}(?:入れ|使い|増やし|変え|残し|出し|公開し|追加し|見せ)たくない(?:です)?$|より[^。]*が(?:好み|好き)です$",
        r"(?:^|、)[^そこあ、][^、。]*は(?:私|僕|俺|自分|こちら)(?:が|で)(?:やる|やります|行う|行います|する|します|決める|決めます)$|(?:につき|ごとに|あたり)[^、。]*(?:最大|最長|上限|まで|以内)[^、。]{0,6}$|最大\d+[^、。0-9]{1,4}(?:まで)?$|は[^、。]*べきです$",
        r"(?:返事|回答|返答|答え).{0,4}(?:短く|簡潔に)|(?:返事|回答|返答|答え|コメント|説明)は[^、。]{0,4}語で(?:$|、)",
        r"必要があります$|(?:テスト|承認|許可|確認|レビュー)が必要(?:です)?$|使用不可|許可しません|以内(?:で|に[^。]*(?:[てで]|こと|ください))$|[にで](?:統一|固定)",
        r"(?:ではなく|じゃなく|の代わりに)[^。]*(?:[てで]|使う|ください)$|ないで(?:いただ|もらえ|ほしい|くれ)|ないよう(?:に)?(?:お願い|注意|気をつけ|して)",
        r"ご遠慮|今日からは?[^。]*(?:ます|こと|ください)$|次(?:回)?からは|^以後、[^。]*(?:[てで]|こと|ください)$|このセッションでは|指示があるまで|[るす]な(?:よ|ね)$|(?:は|絶対に?)(?:ダメ|だめ|ng)$",
        r"(?:たび|度)に[^。]*(?:[てで]|こと|ください)$|毎回[^。]*(?:[てで]|こと)ね?$|迷ったら|(?:する|しておく|収める|書く|使う|守る)こと$|^(?:ルール|規則)[：:].{3,}",
        r"(?:前に|ときは|時は|場合は)[^。]*(?:聞いて|確認して|相談して|一声)|は使わない$|できるのは私だけ|べからず|してほしい(?:です)?$",
    ])
});

pub(super) fn states_rule(text: &str) -> bool {
    // These words state a rule in an order, and not in a report.
    const WEAK: &str = "必ず|絶対に|決して|常に|いつも|毎回|すべての|全ての|ごとに|だけ";
    const REPORTS: &str = "失敗|エラーが|エラーに|落ちる|落ちます|壊れ|おかしい|止まる|止まります|再現|出る|出ます|\
        なります|ました|だった";
    /// What an order ends with.
    const ORDERS: &str = "ください|下さい|て|こと|ように|なさい|しろ|な|ない|ません|する|使う|で|書く|お願いします|せよ";
    // What somebody else said, and comfort.
    if contains(
        text,
        "言って|と書いて|と思ってい|と思ってる|と考えてい|と考えてる|そうです|らしい|とのこと|心配しないで|気にしないで",
    ) {
        return false;
    }
    // An edit in one place.
    if contains(text, "行目") && contains(text, "だけ|のみ") {
        return false;
    }
    let end = without_thanks(text.trim_end_matches(['。', '！', '!', '.', ' ']));
    if end.ends_with("かな") {
        return false;
    }
    let is_order =
        || ORDERS.split('|').any(|order| end.ends_with(order)) || contains(text, "てください|こと");
    let is_labelled = || {
        let labelled = ["注意", "重要"]
            .iter()
            .find_map(|label| text.strip_prefix(label));
        let is_news = contains(text, "私|僕|ている|ています");
        labelled.is_some_and(|rest| rest.starts_with([':', '：', '、']) && rest.len() > 12)
            && !is_news
    };
    PATTERNS.is_match(end)
        || end.contains("ないで、") && !end.ends_with('た')
        || !contains(text, REPORTS)
            && (contains(text, "限り") || is_labelled() || contains(end, WEAK) && is_order())
}

/// Returns a polite request without the words that it would please the user: "…していただけると助かります".
fn without_thanks(text: &str) -> &str {
    const GIVES: [&str; 4] = ["いただけ", "もらえ", "くれると", "くれれば"];
    let thanks = GIVES.iter().filter_map(|gives| text.find(gives)).min();
    match thanks.map(|at| text.split_at(at)) {
        Some((order, thanks))
            if order.ends_with(['て', 'で'])
                && contains(thanks, "嬉し|うれし|助か|ありがた|幸い") =>
        {
            order
        }
        _ => text,
    }
}
