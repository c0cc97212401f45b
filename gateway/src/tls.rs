//! Reads the certificates of `gateway.tls` and `upstream.*.tls`.
//!
//! [`acceptor`] is for the connections of clients, and [`apply`] adds a client certificate and
//! additional authorities to the client for a provider. Both run whenever the settings are built,
//! so a reload reads the files again, and files that cannot be used leave the old ones in force.
//! [`CertificateEnd`] tells how long a certificate is valid.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use contexture::config::{GatewayTls, Loaded, ProviderTls};
use jiff::{Timestamp, ToSpan};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use x509_cert::Certificate;
use x509_cert::der::Decode;

use crate::failure::cause_of;
use crate::settings_error::SettingsError;

/// The error of a certificate and a key that can be read, but not used together.
fn unusable(section: &str, cause: impl Display) -> SettingsError {
    let message = format!(
        "the certificate and key of `{section}` cannot be used: {cause}; name a certificate and the private key that \
         belongs to it"
    );
    SettingsError::at(section, message)
}

/// Reads a file, and checks that `parse` finds something in it.
fn read<T>(
    loaded: &Loaded,
    key: &str,
    file: &Path,
    wanted: &str,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> Result<(Vec<u8>, T), SettingsError> {
    let file = loaded.beside(file);
    let bytes = match std::fs::read(&file) {
        Ok(bytes) => bytes,
        Err(cause) => {
            let file = file.display();
            let message =
                format!("cannot read {file}: {cause}; correct `{key}` or the file's permissions");
            return Err(SettingsError::unreadable(key, message));
        }
    };
    match parse(&bytes) {
        Some(parsed) => Ok((bytes, parsed)),
        None => {
            let file = file.display();
            let message = format!("{file} contains no {wanted} in PEM format: correct `{key}`");
            Err(SettingsError::at(key, message))
        }
    }
}

/// The certificates in a PEM file. None if there are none, or if one of them is damaged.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .ok()?;
    (!all.is_empty()).then_some(all)
}

/// The certificates of authorities in a PEM file. None if one of them cannot be used.
fn authorities(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let (all, mut roots) = (certificates(pem)?, RootCertStore::empty());
    let mut added = all.iter().map(|one| roots.add(one.clone()));
    added.all(|one| one.is_ok()).then_some(all)
}

/// How many hours before its end a certificate is warned about: two weeks.
const WARN_HOURS: i64 = 14 * 24;

/// When a certificate of the gateway's own ends.
#[derive(Debug, Clone)]
pub(crate) struct CertificateEnd {
    /// The section of the configuration that names the certificate.
    pub(crate) section: String,
    pub(crate) at: Timestamp,
}

impl CertificateEnd {
    /// Reads the end of the certificate of a section: the earliest end of all certificates in its
    /// file. None if the section names none, or if a date cannot be read.
    pub(crate) fn of(
        loaded: &Loaded,
        section: String,
        certificate: Option<&PathBuf>,
    ) -> Option<Self> {
        let pem = std::fs::read(loaded.beside(certificate?)).ok()?;
        let ends = certificates(&pem)?.into_iter().map(|one| end_of(&one));
        let at = ends.collect::<Option<Vec<_>>>()?.into_iter().min()?;
        Some(Self { section, at })
    }

    /// What is wrong at a time. None if the certificate is valid for long enough.
    pub(crate) fn warning(&self, now: Timestamp) -> Option<String> {
        let Self { section, at } = self;
        if *at <= now {
            return Some(format!(
                "the certificate of `{section}` expired at {at}, so connections with it fail: replace its file, and \
                 have the configuration read again"
            ));
        }
        (*at <= now.saturating_add(WARN_HOURS.hours()).ok()?).then(|| {
            format!(
                "the certificate of `{section}` expires at {at}: replace its file before, and have the configuration \
                 read again"
            )
        })
    }
}

/// The end of a certificate in DER. None if it is no certificate.
fn end_of(certificate: &[u8]) -> Option<Timestamp> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let end = certificate.tbs_certificate.validity.not_after;
    Timestamp::from_second(end.to_unix_duration().as_secs().try_into().ok()?).ok()
}

/// A certificate with the key that belongs to it.
struct Pair {
    /// Both files.
    pem: Vec<u8>,
    certified: CertifiedKey,
}

/// Reads the certificate and the key of a section, and checks that they fit. Returns None if the
/// section names none.
fn pair(
    loaded: &Loaded,
    section: &str,
    certificate: Option<&PathBuf>,
    key: Option<&PathBuf>,
) -> Result<Option<Pair>, SettingsError> {
    let (Some(certificate), Some(key)) = (certificate, key) else {
        return Ok(None);
    };
    let (what, name) = ("certificate", format!("{section}.certificate"));
    let (pem, chain) = read(loaded, &name, certificate, what, certificates)?;
    let parse_key = |pem: &[u8]| PrivateKeyDer::from_pem_slice(pem).ok();
    let (what, name) = ("private key", format!("{section}.key"));
    let (key_pem, private) = read(loaded, &name, key, what, parse_key)?;
    let certified = CertifiedKey::from_der(chain, private, &ring::default_provider());
    let certified = certified.map_err(|error| {
        let [certificate, key] = [certificate, key].map(|file| loaded.beside(file));
        let cause = format!("{} and {}: {error}", certificate.display(), key.display());
        unusable(section, cause)
    })?;
    Ok(Some(Pair {
        pem: [pem, b"\n".to_vec(), key_pem].concat(),
        certified,
    }))
}

/// Creates the acceptor for the connections of clients. Returns None if the gateway serves HTTP.
///
/// # Errors
/// A file cannot be read, or the key does not belong to the certificate.
pub(crate) fn acceptor(
    loaded: &Loaded,
    tls: &GatewayTls,
) -> Result<Option<TlsAcceptor>, SettingsError> {
    let section = "gateway.tls";
    let own = pair(loaded, section, tls.certificate.as_ref(), tls.key.as_ref())?;
    let Some(Pair { certified, .. }) = own else {
        return Ok(None);
    };
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(section, error))?;
    let resolver = Arc::new(SingleCertAndKey::from(certified));
    let mut config = config.with_no_client_auth().with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

/// Adds the client certificate and the authorities of `upstream.<name>.tls` to an HTTP client.
///
/// # Errors
/// A file cannot be read or holds no certificate or key, or the key does not belong to the certificate.
pub(crate) fn apply(
    loaded: &Loaded,
    name: &str,
    tls: &ProviderTls,
    mut client: reqwest::ClientBuilder,
) -> Result<reqwest::ClientBuilder, SettingsError> {
    let section = format!("upstream.{name}.tls");
    let unusable = |error| unusable(&section, cause_of(&error));
    let own = pair(loaded, &section, tls.certificate.as_ref(), tls.key.as_ref())?;
    if let Some(Pair { pem, .. }) = own {
        client = client.identity(reqwest::Identity::from_pem(&pem).map_err(unusable)?);
    }
    if let Some(ca) = &tls.ca {
        let key = format!("{section}.ca");
        for authority in read(loaded, &key, ca, "certificate", authorities)?.1 {
            let authority = reqwest::Certificate::from_der(&authority).map_err(unusable)?;
            client = client.add_root_certificate(authority);
        }
    }
    Ok(client)
}

#[cfg(test)]
mod tests;
