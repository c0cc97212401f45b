//! Rules in Chinese.

use std::sync::LazyLock;

use regex::RegexSet;

use super::patterns::set;
use super::words::contains;

static PATTERNS: LazyLock<RegexSet> = LazyLock::new(|| {
    const CHANGE: &str = "(?:改|删|新增|添加|增加|移动|重命名|创建|新建|替换|安装|装|升级|合并|推送|发布|部署|提交|停|杀)";
    set(&[
        r"不(?:要|准|得|许|允许|可以|应)|必须|务必|禁止|严禁|[切请]勿|避免|优先|尽量|记住|除非|未经|一定要|一律|^(?:请|代码|提交|命名|所有|要|必须).{0,6}遵循",
        r"永远(?:不|用|要)|[绝决]不|绝对不|只(?:用|使用|可以|准|允许|能)|统一(?:用|使用|采用|为|小写|大写)|每次都|都(?:要|得|必须)",
        r"从现在(?:起|开始)|从今[往以]后|今后|往后|先(?:问我|征得)|经我同意|请(?:始终|总是|永远|确保)",
        // 别 forbids, but it also begins the words for other, other people, alias and elsewhere.
        r"BEGIN(?:以后|勿|只在|别(?:[^的人名处]|$))",
        r"BEGIN每个[^，；：。 ]*(?:要|必须|得|应)",
        // "First this, then that" is a task. It is a rule if it holds each time.
        r"(?:每次|之前).*BEGIN先[^，；：。 ]*再|BEGIN先[^，；：。 ]*(?:再.*(?:每次|之前)|(?:每次|之前).*再)",
        r"用(?:中文|英文|英语|日语|德语|法语|西班牙语)(?:来)?(?:回答|回复|写|交流|注释)",
        r"(?:回复|回答|答案|输出).{0,4}(?:简短|简洁|简练)",
        r"用[^，。]{1,10}[，、](?:而)?不(?:要)?用|^用[^，。]{1,12}而不是",
        r"从今天(?:起|开始)，?(?:请|都|先|只|不|每|所有|要|用|统一|必须)|接下来的(?:对话|回答|会话)|(?:千万|拜托|都|就)别(?:[^的人名处太]|$)|^(?:规则|规定)：.{3,}",
        r"只有我(?:可以|能)|需要?我的?(?:确认|批准|同意)|采用.{1,8}(?:命名|格式|风格)|所有[^，。]{1,8}都用",
        r"(?:回答|回复|答案|输出|篇幅|长度).{0,6}控制在|^[^我]*每当[^我]*，(?:请|都要|要|必须|就[^会])[^我]*$",
        // A condition with a verb of change, and what to do then.
        &format!(
            r"(?:如果|只要|要是|一旦|凡是)[^，。这那我]{{0,6}}{CHANGE}[^，。失成]*，[^，。]*(?:要|先|都|请|记得)"
        ),
        &format!("{CHANGE}[^，。这那我]*(?:之前|以前|前)，?(?:请|麻烦)?先"),
        r"BEGIN(?:注意|重要|切记|提醒一下)[：，][^我你已了]{4,}$|禁区|红线|BEGIN坚持(?:用|使用)|BEGIN[^，。这那]{1,8}由我(?:来|自己|负责|决定)|我自己来(?:做|处理|决定|负责)?。?$",
        r"我们?不希望(?:你|您|看到|[^，。再]*(?:出现|使用|用|改|动))|我们?更(?:喜欢|倾向|偏好)[^，。]*(?:，|$)|希望(?:你|您)?(?:每[^天日]|始终|总是|不要)",
        r"BEGIN[^他她我它，。]*不[^需要会是知有能想觉受存返产抛影发包提支输报 ，。]{1,3}任何|每[^，。天都]{1,4}(?:最多|至多|不超过|不得超过)[^，。失]*。?$|(?:写|放|存|用|提交|推|发)(?:到|在|进|给)[^，。是]{1,12}，?而不是",
        // *Always* tells more often of something than it orders it.
        r"总是(?:用|使用|先|要|写|以|保持|检查|运行)",
    ])
});

/// What somebody else says or thinks.
static REPORTED: LazyLock<RegexSet> = LazyLock::new(|| {
    set(&[r"(?:老板|领导|上司|同事|经理|客户|朋友|他|她|有人)们?(?:说|觉得|认为|以为)"])
});

pub(super) fn states_rule(text: &str) -> bool {
    // Many write commas of half the width. What follows a question is judged by itself.
    let (_, text) = text.rsplit_once(['?', '？']).unwrap_or(("", text));
    let text = &text.replace(',', "，").replace(':', "：");
    // These words state a rule unless the sentence reports something.
    const WEAK: &str = "始终|不能|永远|确保|不可|从不";
    const REPORTS: &str = "失败|报错|出错|超时|崩溃|返回|挂掉|卡住|提示|运行了|启动|工作了|编译|打开|登录|访问|连接|\
        正常|不了|成功|为什么|运行$|运行。|通过|因为|不能光|着";
    /// Words with a cue in them that say something else.
    const IDIOMS: [&str; 15] = [
        "说不准", "不得不", "记住了", "不要紧", "别担心", "不要担心", "别着急", "不要着急",
        "别客气", "别太", "不要太", "不能太", "能不能", "以确保", "如果我们",
    ];
    let is_reported = (contains(
        text,
        "说：|写道|提示说|文档说|日志说|昨天|当时|以前我|以前都|过去我",
    ) || REPORTED.is_match(text))
        && !contains(text, "我说|规则");
    let idiomatic: String;
    let mut text = text;
    if contains(text, "我") || IDIOMS.iter().any(|idiom| text.contains(idiom)) {
        let own = text.split_inclusive(['，', '；', '。', '！', '：']);
        let own: String = own.filter(|clause| !is_of_speaker(clause)).collect();
        idiomatic = IDIOMS
            .iter()
            .fold(own, |text, idiom| text.replace(idiom, "x"));
        text = &idiomatic;
    }
    !is_reported && (PATTERNS.is_match(text) || contains(text, WEAK) && !contains(text, REPORTS))
}

/// Whether a clause tells of its speaker: "我必须离开了". What the speaker wants is a rule.
fn is_of_speaker(clause: &str) -> bool {
    const LEADS: [&str; 16] = [
        "但是", "但", "可是", "所以", "现在", "最近", "以后", "其实", "今天", "然后", "而且",
        "因为", "嗯", "那", "就", "也",
    ];
    const WISHES: [&str; 18] = [
        "我们", "我更", "我自己来", "我希望", "我要求", "我要你", "我想让", "我需要你", "我说",
        "我的", "我只", "我不想", "我不要", "我不希望", "我不允许", "我没", "我同意", "我批准",
    ];
    let mut clause = clause.trim_start();
    while let Some(rest) = LEADS.iter().find_map(|lead| clause.strip_prefix(lead)) {
        clause = rest;
    }
    clause.starts_with('我') && !WISHES.iter().any(|wish| clause.starts_with(wish))
}
