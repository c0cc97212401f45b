#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn admitted(access: &Access, headers: &[(&'static str, &str)]) -> Result<(), &'static str> {
    let mut all = HeaderMap::new();
    for (name, value) in headers {
        all.append(*name, value.parse().unwrap());
    }
    let address = "127.0.0.1:8787".parse().unwrap();
    let admitted = access.admit(address, &"/v1/models".parse().unwrap(), &all);
    admitted.map(|_| ()).map_err(|(reason, _)| reason)
}

/// Hosts with names, ports and text around them. Most of them are not the gateway's.
fn hosts() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        Just("localhost".to_owned()),
        Just("127.0.0.1".to_owned()),
        Just("[::1]".to_owned()),
        Just("gw.test".to_owned()),
        "[a-z0-9.-]{1,12}",
        any::<std::net::Ipv4Addr>().prop_map(|ip| ip.to_string()),
        any::<std::net::Ipv6Addr>().prop_map(|ip| format!("[{ip}]")),
    ];
    let around = prop_oneof![6 => Just(String::new()), 1 => "[a-z0-9.@:/\\[\\] -]{1,3}"];
    let port = prop_oneof![
        4 => Just(":8787".to_owned()),
        1 => Just(String::new()),
        1 => "[:+]{1,2}[0-9]{1,6}",
    ];
    let casing = any::<bool>();
    (around.clone(), name, port, around, casing).prop_map(|(before, name, port, after, upper)| {
        let host = format!("{before}{name}{port}{after}");
        if upper { host.to_uppercase() } else { host }
    })
}

/// Whether a browser that follows this host reaches this machine or a configured name.
fn is_own(host: &str) -> bool {
    let host = host.to_lowercase();
    let Ok(url) = reqwest::Url::parse(&format!("http://{host}/")) else {
        return false;
    };
    let name = url.host_str().unwrap_or_default();
    let is_plain = url.username().is_empty() && url.path() == "/" && url.query().is_none();
    let ip = name.trim_matches(['[', ']']).parse::<IpAddr>();
    let is_here = name == "localhost" || ip.is_ok_and(|ip| ip.to_canonical().is_loopback());
    is_plain && (name == "gw.test" || is_here)
}

proptest! {
    #[test]
    fn a_host_that_is_served_leads_here(host in hosts()) {
        let host = host.trim().to_owned();
        let access = Access { hosts: vec!["gw.test".to_owned()], origins: Vec::new() };
        let is_served = admitted(&access, &[("host", &host)]).is_ok();
        prop_assert!(!is_served || is_own(&host), "{host}");
        // A host that is spelled as a browser spells it has to be served.
        let spelled = reqwest::Url::parse(&format!("http://{host}/"));
        if is_own(&host) && spelled.is_ok_and(|url| url.as_str() == format!("http://{}/", host.to_lowercase())) {
            prop_assert!(is_served, "{host}");
        }
    }

    #[test]
    fn an_origin_is_the_own_one_or_a_configured_one(
        scheme in prop_oneof!["https?", "[a-z-]{1,8}", Just("app".to_owned())],
        host in hosts(),
        more in prop_oneof![4 => Just(String::new()), 1 => "[/a-z.:]{1,4}"],
    ) {
        let origin = format!("{scheme}://{}{more}", host.trim());
        let access = Access { hosts: Vec::new(), origins: vec!["https://gw.test".to_owned()] };
        let served = admitted(&access, &[("host", "localhost:8787"), ("origin", &origin)]);
        let origin = origin.to_lowercase();
        let is_own = ["http://localhost:8787", "https://localhost:8787", "https://gw.test"].contains(&&*origin);
        let expected = if is_own || APP_SCHEMES.contains(&&*scheme) { Ok(()) } else { Err("origin") };
        prop_assert_eq!(served, expected, "{}", origin);
    }
}
