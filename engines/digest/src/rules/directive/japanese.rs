//! Rules in Japanese.

use std::sync::LazyLock;

use regex::RegexSet;

use super::patterns::set;
use super::words::contains;

static PATTERNS: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        r"(?:ては|ちゃ)(?:いけ|なりません|ならない|だめ)|しないで|ないで(?:ください|下さい)|ないこと|禁止|するな",
        r"やめて|避けて|勝手に|(?:許可|承認)な[くし]|(?:確認して|聞いて)から|忘れ(?:ないで|ずに)",
        r"(?:だけ|のみ)を?使|今後は|これからは|これ以降|以降は|優先して|厳守|徹底して|ようにして",
        r"なければな(?:りません|らない)|すべきでは|べきではない|でください。必ず",
        r"(?:日本語|英語|中国語|ドイツ語|フランス語)で(?:答|書|返|回答|説明|コメント)",
        r"(?:ないで|ないように)$",
        r"(?:返事|回答|返答|答え).{0,4}(?:短く|簡潔に)",
        r"必要があります$|(?:テスト|承認|許可|確認|レビュー)が必要(?:です)?$|使用不可|許可しません|以内(?:で|に[^。]*(?:て|こと|ください))$|に統一",
        r"(?:ではなく|じゃなく|の代わりに)[^。]*(?:て|使う|ください)$|ないで(?:いただ|もらえ|ほしい|くれ)|ないよう(?:に)?(?:お願い|注意|気をつけ|して)",
        r"ご遠慮|今日からは?[^。]*(?:ます|こと|ください)$|次(?:回)?からは|^以後、|このセッションでは|指示があるまで|[るす]な(?:よ|ね)$|(?:ダメ|だめ|NG)$",
        r"(?:たび|度)に[^。]*(?:て|こと|ください)$|毎回[^。]*(?:て|こと)ね?$|迷ったら|(?:する|しておく|収める|書く|使う|守る)こと$|^(?:ルール|規則)[：:].{3,}",
        r"(?:前に|ときは|時は)[^。]*(?:聞いて|確認して|一声)|は使わない$|できるのは私だけ|べからず|してほしい(?:です)?$",
    ])
});

pub(super) fn states_rule(text: &str) -> bool {
    // These words state a rule in an order, and not in a report.
    const WEAK: &str = "必ず|絶対に|決して|常に|いつも|毎回|すべての|全ての|だけ";
    const REPORTS: &str = "失敗|エラーが|エラーに|落ちる|落ちます|壊れ|おかしい|止まる|止まります|再現|出る|出ます|\
        なります|ました|だった";
    /// What an order ends with.
    const ORDERS: &str = "ください|下さい|て|こと|ように|なさい|しろ|な|ない|ません|する|使う|で|書く|お願いします|せよ";
    // What somebody else said, and comfort.
    if contains(
        text,
        "言って|と書いて|そうです|らしい|とのこと|心配しないで|気にしないで",
    ) {
        return false;
    }
    let end = text.trim_end_matches(['。', '！', '!', '.', ' ']);
    let is_order =
        || ORDERS.split('|').any(|order| end.ends_with(order)) || contains(text, "てください|こと");
    PATTERNS.is_match(end)
        || !contains(text, REPORTS)
            && (contains(text, "限り") || contains(text, WEAK) && is_order())
}
