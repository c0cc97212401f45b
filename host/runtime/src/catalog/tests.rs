#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

#[test]
fn every_folder_with_a_manifest_is_listed_in_its_state() {
    let dir = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let library = |stem: &str| {
        let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
        format!("{prefix}{stem}{suffix}")
    };
    put(
        "ready/plugin.yaml",
        "name: ready\nversion: \"1\"\nlibrary: other\n",
    );
    put(&format!("ready/{}", library("other")), "");
    put(
        "source-only/plugin.yaml",
        "name: source-only\nversion: \"1\"\n",
    );
    put("source-only/src/lib.rs", "");
    put("Bad Name/plugin.yaml", "name: x\nversion: \"1\"\n");
    put("folder/plugin.yaml", "name: folder\nversion: \"1\"\n");
    std::fs::create_dir(dir.path().join("folder").join(library("folder"))).unwrap();
    put("no-plugin/README.md", "");
    put("plugin.yaml", "name: loose\nversion: \"1\"\n");

    let missing = dir.path().join("missing");
    let file = dir.path().join("plugin.yaml");
    let dirs = [dir.path().to_owned(), missing, file, dir.path().to_owned()];
    let catalog = Catalog::scan(&dirs, vec![]);
    let states: Vec<_> = catalog
        .plugins
        .iter()
        .map(|plugin| (plugin.name.as_str(), plugin.to_string()))
        .collect();
    let names: Vec<_> = states.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["Bad Name", "folder", "ready", "source-only"]);
    assert!(states[0].1.contains("is not named like an engine"));
    assert!(states[1].1.contains("is not a file"));
    assert!(matches!(
        catalog.plugins[2].state,
        PluginState::Ready { .. }
    ));
    assert!(states[3].1.contains("not built: there is no"));
    assert_eq!(
        catalog.folders.len(),
        3,
        "a folder given twice is searched once"
    );
    assert_eq!(catalog.folders[1].state, FolderState::Missing);
    assert!(matches!(
        catalog.folders[2].state,
        FolderState::Unreadable(_)
    ));
}

#[cfg(unix)]
#[test]
fn a_library_may_be_a_link_inside_the_folder_and_a_dead_link_is_not_built() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("plugins/x");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("plugin.yaml"), "name: x\nversion: \"1\"\n").unwrap();
    let target = dir.path().join("plugins/target");
    let link = folder.join(format!(
        "{}x{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    ));
    std::os::unix::fs::symlink(&target, link).unwrap();
    let scan = || Catalog::scan(&[dir.path().join("plugins")], vec![]);
    assert!(matches!(
        scan().plugins[0].state,
        PluginState::NotBuilt { .. }
    ));
    std::fs::write(&target, "").unwrap();
    assert!(matches!(scan().plugins[0].state, PluginState::Ready { .. }));

    std::fs::remove_file(&target).unwrap();
    let outside = dir.path().join("outside");
    std::fs::write(&outside, "").unwrap();
    std::os::unix::fs::symlink(&outside, &target).unwrap();
    let told = scan().plugins[0].to_string();
    assert!(told.contains("is a link to"), "{told}");
}

#[cfg(unix)]
#[test]
fn what_somebody_else_may_write_is_refused_and_what_a_group_may_is_a_warning() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    const ANOTHER: u32 = 65_534;

    let dir = tempfile::tempdir().unwrap();
    let plugins = dir.path().join("plugins");
    let folder = plugins.join("x");
    std::fs::create_dir_all(&folder).unwrap();
    let library = folder.join(format!(
        "{}x{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    ));
    let manifest = folder.join(MANIFEST_FILE);
    std::fs::write(&manifest, "name: x\nversion: \"1\"\n").unwrap();
    std::fs::write(&library, "").unwrap();
    let places = [&plugins, &folder, &manifest, &library];
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    places.iter().for_each(|path| set(path, 0o755));
    let scan = || {
        Catalog::scan(std::slice::from_ref(&plugins), vec![])
            .plugins
            .remove(0)
    };
    assert_eq!(scan().warnings, Vec::<String>::new());
    for path in places {
        set(path, 0o757);
        let told = scan().to_string();
        assert!(
            told.contains(&format!("`chmod o-w '{}'`", path.display())),
            "{told}"
        );
        set(path, 0o775);
        let plugin = scan();
        assert!(
            matches!(plugin.state, PluginState::Ready { .. }),
            "{plugin}"
        );
        let warned = plugin
            .warnings
            .first()
            .is_some_and(|warning| warning.contains(&format!("`chmod g-w '{}'`", path.display())));
        // Who is in the group that runs the tests is the machine's.
        let text = |file| std::fs::read_to_string(file).unwrap();
        let found = std::fs::metadata(path).unwrap();
        let others = contexture_base::trust::has_others(
            found.gid(),
            found.uid(),
            &text("/etc/group"),
            &text("/etc/passwd"),
        );
        assert_eq!(warned, others, "{:?}", plugin.warnings);
        set(path, 0o755);
        let own = std::fs::metadata(path).unwrap().uid();
        if chown(path, Some(ANOTHER), None).is_err() {
            println!(
                "skipped: only root can give {} to another user",
                path.display()
            );
            continue;
        }
        let told = scan().to_string();
        let mends = format!(
            "belongs to the user {ANOTHER}, and its content runs as you or decides what runs as you: run `sudo chown -R {own} '"
        );
        assert!(
            told.contains(&(mends + &path.display().to_string())),
            "{told}"
        );
        chown(path, Some(own), None).unwrap();
    }
}
