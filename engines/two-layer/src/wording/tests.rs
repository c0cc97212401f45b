#![allow(clippy::unwrap_used)]

use super::*;

fn question(format: SummaryFormat) -> Question {
    Question {
        current: "怎么修复?".to_owned(),
        format,
        budget: 500,
    }
}

#[test]
fn the_prompt_is_the_documents() {
    let prompt = question(SummaryFormat::Text).whole("[user] 你好");
    assert_eq!(
        prompt,
        "请将以下对话历史压缩为简洁的摘要,保留关键信息(用户意图、决策、工具结果等):\n\n当前用户问题:怎么修复?\n\n\
             对话历史:\n[user] 你好\n\n要求:\n1. 保留所有关键事实和数据\n2. 压缩冗余描述\n3. 突出与当前问题相关的内容\n"
    );
}

#[test]
fn an_answer_in_json_is_three_lists_whatever_stands_around_it() {
    let asked = question(SummaryFormat::Json);
    let answer = "```json\n{\"topics\": [\"pool\"], \"actions\": [], \"more\": 1}\n```";
    let read = asked.read(answer).unwrap();
    assert_eq!(read, r#"{"topics":["pool"],"entities":[],"actions":[]}"#);
    assert!(asked.read("They spoke of a pool.").is_err());
    assert_eq!(
        asked.read_piece("They spoke of a pool.").unwrap(),
        "They spoke of a pool."
    );
}

#[test]
fn refusals_and_empty_answers_are_none() {
    let asked = question(SummaryFormat::Text);
    assert_eq!(
        asked.read("【历史摘要】\n").unwrap_err().kind,
        FailureKind::Empty
    );
    assert_eq!(
        asked.read("抱歉,我无法").unwrap_err().kind,
        FailureKind::Refused
    );
    assert_eq!(
        asked.read("【历史摘要】\n他们谈了。").unwrap(),
        "他们谈了。"
    );
}

#[test]
fn a_digest_becomes_lists_and_lists_are_cut() {
    let digest =
        "## Goal\n- fix the pool\n\n## Progress\n### Done\n- ran make\n\n## Relevant Files\n- a.rs";
    let lists = digest_in_json(digest);
    assert_eq!(
        lists,
        r#"{"topics":["fix the pool"],"entities":["a.rs"],"actions":["ran make"]}"#
    );
    let long =
        json!({"topics": vec!["a topic of some words"; 100], "entities": ["e"], "actions": []});
    let cut = cut_to(long.to_string(), SummaryFormat::Json, 60, &Services::none());
    let cut: Value = serde_json::from_str(&cut).unwrap();
    assert_eq!(cut["entities"], json!(["e"]));
    assert!((1..20).contains(&cut["topics"].as_array().unwrap().len()));
}
