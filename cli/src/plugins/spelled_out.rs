//! Spells out what a package's manifest takes from its workspace.
//!
//! A package that is copied out of the repository cannot refer to the workspace's manifest any
//! more. `spelled_out` replaces each `workspace = true` by the value that it stands for. The build
//! script uses this file, too, so it depends on nothing but the standard library.
//!
//! It reads manifests line by line and understands only the forms that this repository uses. A key
//! that it does not find becomes the version `*`.

/// Returns `manifest` with everything spelled out that it takes from its workspace. `root` is the
/// manifest of the workspace. Lints are left out. `place` returns the path of a package of the
/// workspace from its folder.
pub(crate) fn spelled_out(manifest: &str, root: &str, place: &dyn Fn(&str) -> String) -> String {
    let mut text = String::new();
    let mut section = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        if section == "[lints]" {
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

/// Returns the value of a key in a table of a manifest, or any version (`"*"`) if there is none.
fn given<'a>(manifest: &'a str, table: &str, key: &str) -> &'a str {
    let mut lines = manifest.lines().skip_while(|line| *line != table).skip(1);
    let mut lines = lines.by_ref().take_while(|line| !line.starts_with('['));
    let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
    value.unwrap_or("\"*\"")
}

/// Returns a dependency as an inline table. `value` is what the workspace says, and `own` is what
/// the package adds to it, such as features. A path replaces the version.
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
