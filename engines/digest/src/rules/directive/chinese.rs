//! Rules in Chinese.

use std::sync::LazyLock;

use regex::RegexSet;

use super::patterns::set;
use super::words::contains;

static PATTERNS: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[
        r"不(?:要|准|得|许|允许|可以|应)|必须|务必|禁止|严禁|[切请]勿|避免|优先|尽量|记住|除非|未经|一定要|一律",
        r"永远(?:不|用|要)|[绝决]不|绝对不|只(?:用|使用|可以|准|允许|能)|统一(?:用|使用)|每次都|都(?:要|得|必须)",
        r"从现在(?:起|开始)|从今[往以]后|今后|往后|先(?:问我|征得)|经我同意|请(?:始终|总是|永远|确保)",
        // 别 forbids, but it also begins the words for other, other people, alias and elsewhere.
        r"BEGIN(?:以后|勿|只在|别(?:[^的人名处]|$))",
        r"BEGIN每个[^，,；：。 ]*(?:要|必须|得|应)",
        // "First this, then that" is a task. It is a rule if it holds each time.
        r"(?:每次|之前).*BEGIN先[^，,；：。 ]*再|BEGIN先[^，,；：。 ]*(?:再.*(?:每次|之前)|(?:每次|之前).*再)",
        r"用(?:中文|英文|英语|日语|德语|法语|西班牙语)(?:来)?(?:回答|回复|写|交流|注释)",
        r"(?:回复|回答|答案|输出).{0,4}(?:简短|简洁|简练)",
        r"用[^，,。]{1,10}[，,、](?:而)?不(?:要)?用",
    ])
});

pub(super) fn states_rule(text: &str) -> bool {
    // These words state a rule unless the sentence reports something.
    const WEAK: &str = "总是|始终|不能|永远|确保|不可|从不";
    const REPORTS: &str = "失败|报错|出错|超时|崩溃|返回|挂掉|卡住|提示|运行了|启动|工作了|编译|打开|登录|访问|连接|\
        正常|不了|成功|为什么";
    let is_reported =
        contains(text, "说：|写道|提示说|文档说|日志说") && !contains(text, "我说|规则");
    !is_reported && (PATTERNS.is_match(text) || contains(text, WEAK) && !contains(text, REPORTS))
}
