//! A package's manifest without what it takes from its workspace. The build script uses it, too.

/// A manifest of the workspace whose own manifest is `root`, with everything spelled out that it takes from there,
/// and without lints and a build script. `place` says where a package of the workspace is, by its folder there.
pub(crate) fn spelled_out(manifest: &str, root: &str, place: &dyn Fn(&str) -> String) -> String {
    let mut text = String::new();
    let mut section = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        if section == "[lints]" || line.starts_with("build = ") {
            continue;
        }
        let (key, own) = match line.split_once(" = ") {
            Some((key, "true")) if key.ends_with(".workspace") => {
                (key.trim_end_matches(".workspace"), "")
            }
            Some((key, value)) if value.contains("workspace = true") => (key, inside(value)),
            _ => {
                text.push_str(line);
                text.push('\n');
                continue;
            }
        };
        let table = match section {
            "[package]" => "[workspace.package]",
            _ => "[workspace.dependencies]",
        };
        let value = given(root, table, key);
        let value = match section {
            "[package]" => value.to_owned(),
            _ => dependency(value, own, place),
        };
        text.push_str(&format!("{key} = {value}\n"));
    }
    format!("{}\n", text.trim_end())
}

/// What a table of a manifest gives for a key.
fn given<'a>(manifest: &'a str, table: &str, key: &str) -> &'a str {
    let mut lines = manifest.lines().skip_while(|line| *line != table).skip(1);
    let mut lines = lines.by_ref().take_while(|line| !line.starts_with('['));
    let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
    value.unwrap_or("\"*\"")
}

/// A dependency of the workspace's, with what a package says of it beside.
fn dependency(value: &str, own: &str, place: &dyn Fn(&str) -> String) -> String {
    let mut whole = match value.starts_with('{') {
        true => inside(value).to_owned(),
        false => format!("version = {value}"),
    };
    if let Some((_, path)) = whole.split_once("path = \"") {
        let path = path.split('"').next().unwrap_or_default();
        whole = format!("path = {:?}", place(path));
    }
    let own = own.replace("workspace = true", "");
    let own = own.trim_matches([' ', ',']);
    match own.strip_prefix("features = [") {
        Some(more) if whole.contains("features = [") => {
            let both = format!("features = [{}, ", more.trim_end_matches(']'));
            whole = whole.replace("features = [", &both);
        }
        _ if own.is_empty() => {}
        _ => whole.push_str(&format!(", {own}")),
    }
    format!("{{ {whole} }}")
}

fn inside(table: &str) -> &str {
    table.trim_matches(['{', '}', ' '])
}
