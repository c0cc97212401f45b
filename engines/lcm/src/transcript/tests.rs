use contexture_engine_api::MessageId;

use super::*;

#[test]
fn a_transcript_shortens_names_errors_and_masks_secrets() {
    let long = format!("BEGIN {} END", "word ".repeat(4_000));
    let messages = [
        MessageView::new(MessageId(1), "user")
            .with_text("use sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789ABCD"),
        MessageView::new(MessageId(2), "tool")
            .with_result_of("c", "bash")
            .with_error(true)
            .with_text(&long),
        MessageView::new(MessageId(3), "tool")
            .with_result_of("d", "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789ABCD")
            .with_text("done"),
    ];
    let parts = transcript(&messages);
    assert!(parts.len() == 3 && parts[1].len() < long.len());
    let text = parts.concat();
    assert!(
        text.contains("[error of bash] BEGIN") && text.contains("END"),
        "{text}"
    );
    assert!(!text.contains("abcdefghijklmnop"), "{text}");
}

#[test]
fn people_are_told_apart_by_name() {
    let messages = [
        MessageView::new(MessageId(1), "user")
            .with_name("dana")
            .with_text("Ship it."),
        MessageView::new(MessageId(2), "user")
            .with_name("Ben\nLi")
            .with_text("Not yet."),
        MessageView::new(MessageId(3), "tool")
            .with_name("dana")
            .with_result_of("c", "bash")
            .with_text("done"),
    ];
    let parts = transcript(&messages);
    assert_eq!(
        parts.concat(),
        "[user dana] Ship it.\n[user Ben Li] Not yet.\n[result of bash] done\n"
    );
    assert_eq!(
        plain(&messages),
        "user dana: Ship it.\nuser Ben Li: Not yet.\ntool: done\n"
    );
    let long = "ä".repeat(1_000);
    let named = MessageView::new(MessageId(1), "user").with_name(&long);
    assert!(speaker(&named).len() < 300);
}

#[test]
fn fitting_keeps_whole_lines_and_never_splits_a_character() {
    let services = Services::none();
    let text = "数据库索引重建完成\n".repeat(40);
    for max in 0..60 {
        assert!(services.count_tokens(&fit(&text, max, &services)) <= max);
    }
}
