use proptest::prelude::*;
use serde_json::json;

use super::*;

proptest! {
    #[test]
    fn a_part_fits_and_is_nearly_the_longest(
        text in "(\\PC|[\"\\\\\n]|漢){0,400}", room in 0u64..80, from in 0usize..40,
    ) {
        let services = Services::none();
        let from = text.floor_char_boundary(from);
        let item = |end: usize| json!({"text": text[from..end]});
        let tokens = |end: usize| count(&services, &item(end));
        let end = longest(&text, from, room, &services, item);
        prop_assert!(end == from || tokens(end) <= room);
        if end < text.len() && room > tokens(from) + 8 {
            prop_assert!(tokens(end) + 8 >= room, "{} of {room}", tokens(end));
        }
    }
}

#[test]
fn a_first_item_is_cut_and_a_later_one_waits() {
    let services = Services::none();
    let text = "数据库\"\\".repeat(1_000);
    let item = |end: usize| json!({"text": text[..end]});
    let mut page = Page::new(100, &json!({}), &services);
    let end = page.push_part(&text, 0, item);
    assert!(
        matches!(end, Some(end) if end > 100 && end < 400),
        "{end:?}"
    );
    assert_eq!(page.push_part(&text, 0, item), None);
    assert!(!page.push(json!(text)));
    // If there is no room at all, one character is shown all the same.
    let mut page = Page::new(0, &json!({}), &services);
    assert_eq!(page.push_part(&text, 0, item), Some(3));
}

#[test]
fn an_answer_that_came_out_too_large_is_made_again_for_less() {
    let services = Services::none();
    let mut rooms = Vec::new();
    let answer = within(Some(200), &services, |room| {
        rooms.push(room);
        // Counts 10 tokens too few.
        Ok(json!("x".repeat(4 * room as usize + 38)))
    });
    assert!(matches!(answer, Ok(answer) if count(&services, &answer) <= 200));
    assert_eq!(rooms, [200, 190]);
}
