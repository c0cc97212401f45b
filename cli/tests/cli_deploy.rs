//! The files of `deploy/`: they parse, and name only what exists.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::collections::BTreeSet;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use cli_support::Home;
use contexture_provider_simulator::address_in;
use serde::Deserialize;
use serde_json::Value;

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy")).join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn yaml(name: &str) -> Value {
    let text = text(name);
    let mut value: serde_yaml::Value = serde_yaml::from_str(&text).expect(name);
    value.apply_merge().expect(name);
    serde_json::to_value(value).expect(name)
}

/// Every metric of the gateway that a text names.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("contexture_") {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        // A longer word, such as the name of a file, is not a metric.
        if text[..at].ends_with(is_name) {
            continue;
        }
        let rest = &text[at..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        found.insert(rest[..end].to_owned());
    }
    found
}

/// The names of the series that a gateway shows from its start, before any request. The first ones are all that it may
/// ever show, and the others those that it has at once.
fn shown() -> (BTreeSet<String>, BTreeSet<String>) {
    let home = Home::new();
    let mut child = home
        .command(["serve", "--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let address = address_in(&mut BufReader::new(child.stderr.take().unwrap()));
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let mut names = BTreeSet::new();
    for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        match kind {
            "histogram" => {
                names.extend(["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")))
            }
            _ => {
                names.insert(name.to_owned());
            }
        }
    }
    (names, metrics_in(&without_comments(&page)))
}

fn without_comments(page: &str) -> String {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn alerts_and_dashboards_name_metrics_that_exist() {
    let (shown, present) = shown();
    assert!(shown.contains("contexture_requests_total"), "{shown:?}");
    let rules = yaml("prometheus/alerts.yml");
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    assert!(!rules.is_empty());
    for rule in rules {
        for key in ["alert", "expr"] {
            assert!(rule[key].is_string(), "{key}: {rule}");
        }
        assert!(rule["annotations"]["summary"].is_string(), "{rule}");
        let expression = rule["expr"].as_str().unwrap();
        let named = metrics_in(expression);
        let unknown: Vec<_> = named.difference(&shown).collect();
        assert!(unknown.is_empty(), "{unknown:?} in {expression}");
        // A series that begins with its first events has not increased, as Prometheus sees it.
        let absent: Vec<_> = named.difference(&present).collect();
        assert!(
            absent.is_empty() || !expression.contains("increase("),
            "{absent:?} in {expression}"
        );
    }
    let dashboard: Value =
        serde_json::from_str(&text("grafana/dashboards/contexture.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(
            ids.insert(panel["id"].as_u64().unwrap()),
            "an id twice: {panel}"
        );
        if panel["type"] == "row" {
            continue;
        }
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            let named = metrics_in(expression);
            let unknown: Vec<_> = named.difference(&shown).collect();
            assert!(unknown.is_empty(), "{unknown:?} in {expression}");
            assert!(
                !named.is_empty() || expression.contains("up{"),
                "{expression}"
            );
            let open = |one: char| expression.matches(one).count();
            assert_eq!(
                (open('('), open('{'), open('[')),
                (open(')'), open('}'), open(']')),
                "{expression}"
            );
        }
    }
    // The other way round: what a gateway shows is on the dashboard or in an alert.
    let named = metrics_in(&format!("{rules:?}{dashboard}"));
    let forgotten: Vec<_> = shown
        .iter()
        .filter(|name| !name.ends_with("_sum") && !name.ends_with("_count"))
        .filter(|name| !named.contains(*name))
        .collect();
    assert!(forgotten.is_empty(), "{forgotten:?}");
}

#[test]
fn the_compose_file_and_what_it_mounts_fit_together() {
    let compose = yaml("compose.yaml");
    let services = compose["services"].as_object().unwrap();
    let mut mounted = 0;
    for (name, service) in services {
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let volume = volume.as_str().unwrap();
            let from = volume.split(':').next().unwrap();
            match from.strip_prefix("./") {
                Some(path) => {
                    assert!(file(path).exists(), "{name}: {volume}");
                    mounted += 1;
                }
                None => assert!(compose["volumes"].get(from).is_some(), "{name}: {volume}"),
            }
        }
    }
    assert!(mounted >= 4, "{mounted}");
    let gateways: Vec<&String> = services
        .keys()
        .filter(|name| name.starts_with("gateway-"))
        .collect();
    assert_eq!(gateways.len(), 2);
    let (nginx, prometheus) = (text("nginx.conf"), text("prometheus/prometheus.yml"));
    for gateway in gateways {
        assert_eq!(services[gateway]["image"], "contexture:latest");
        assert!(
            nginx.contains(&format!("server {gateway}:8787 max_fails=0;")),
            "{gateway}"
        );
        assert!(prometheus.contains(&format!("{gateway}:8787")), "{gateway}");
    }
    for name in [
        "prometheus/prometheus.yml",
        "grafana/provisioning/datasources/prometheus.yml",
        "grafana/provisioning/dashboards/contexture.yml",
    ] {
        assert!(yaml(name).is_object(), "{name}");
    }
    let dockerfile = text("Dockerfile");
    assert!(dockerfile.starts_with("# syntax="));
    assert!(dockerfile.lines().any(|line| line == "USER 10001"));

    let home = Home::new();
    // Whatever mounts a configuration names one of the file's own.
    for (name, service) in services {
        for mount in service["configs"].as_array().into_iter().flatten() {
            let source = mount["source"].as_str().unwrap();
            assert!(compose["configs"].get(source).is_some(), "{name}: {source}");
        }
    }
    accepts(
        &home,
        compose["configs"]["gateway"]["content"].as_str().unwrap(),
    );

    // The configuration that the image reads, with the command that it runs.
    let config = file("config.yaml").display().to_string();
    accepts(&home, &text("config.yaml"));
    let last = dockerfile.lines().last().unwrap();
    let command: Vec<String> = serde_json::from_str(last.strip_prefix("CMD ").unwrap()).unwrap();
    let mut run = home.command(
        command
            .iter()
            .map(String::as_str)
            .map(|argument| match argument {
                "/etc/contexture/config.yaml" => config.as_str(),
                "0.0.0.0:8787" => "0.0.0.0:0",
                argument => argument,
            }),
    );
    run.env("CONTEXTURE_TOKEN_TEAM", "a")
        .env("CONTEXTURE_TOKEN_MONITORING", "b");
    let mut child = run.stderr(Stdio::piped()).spawn().unwrap();
    let address = address_in(&mut BufReader::new(child.stderr.take().unwrap()));
    // As Prometheus asks.
    let mut stream = TcpStream::connect(address.replace("0.0.0.0", "127.0.0.1")).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nhost: gateway-1:8787\r\nauthorization: Bearer b\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The command accepts this configuration.
fn accepts(home: &Home, config: &str) {
    let path = home.put("checked.yaml", config);
    let checked = home
        .command(["config", "check", "--config", &path])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{config}\n{said}");
}

/// What Helm makes of the chart with these settings, an object for each document.
fn rendered(settings: &[&str]) -> Vec<Value> {
    let chart = file("helm/contexture").display().to_string();
    let output = Command::new("helm")
        .args(["template", "release", &chart])
        .args(settings.iter().flat_map(|setting| ["--set", setting]))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{settings:?}: {said}");
    let text = String::from_utf8(output.stdout).unwrap();
    // Kubernetes itself does not know what an operator adds.
    let own: Vec<&str> = (text.split("\n---\n"))
        .filter(|one| !one.contains("apiVersion: monitoring.coreos.com/"))
        .collect();
    valid(&own.join("\n---\n"));
    let documents = serde_yaml::Deserializer::from_str(&text);
    let documents = documents.map(|one| Value::deserialize(one).unwrap());
    documents.filter(|one| !one.is_null()).collect()
}

/// Kubernetes knows the resources and all their members.
fn valid(resources: &str) {
    let home = Home::new();
    let path = home.put("resources.yaml", resources);
    let validate = Command::new("kubernetes-validate")
        .args(["--strict", "--quiet", &path])
        .output();
    match validate {
        Err(_) => eprintln!("SKIPPED: kubernetes-validate is not installed"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            let more = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}{more}\n{resources}");
        }
    }
}

fn kind<'v>(resources: &'v [Value], kind: &str) -> Option<&'v Value> {
    resources.iter().find(|one| one["kind"] == kind)
}

#[test]
fn helm_accepts_the_chart_and_the_gateway_what_it_makes() {
    if Command::new("helm").arg("version").output().is_err() {
        eprintln!("SKIPPED: helm is not installed, so the chart is not tested");
        return;
    }
    let chart = file("helm/contexture").display().to_string();
    let lint = Command::new("helm")
        .args(["lint", "--strict", &chart])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&lint.stdout);
    assert!(lint.status.success(), "{said}");
    let home = Home::new();
    for settings in [
        &[][..],
        &[
            "ingress.enabled=true",
            "ingress.className=nginx",
            "ingress.tlsSecret=certificate",
            "serviceMonitor.enabled=true",
            "serviceMonitor.labels.release=prometheus",
            "serviceMonitor.tlsConfig.serverName=contexture.example.org",
            "image.tag=edge",
            "imagePullSecrets[0].name=registry",
            "nodeSelector.disk=ssd",
            "tolerations[0].operator=Exists",
            "podAnnotations.team=agents",
            "service.annotations.team=agents",
            "config.model.context_length=1000000",
            "config.gateway.shutdown_ms=120000",
            "tlsSecret=certificate",
        ],
        &["replicas=1"],
    ] {
        let resources = rendered(settings);
        let (deployment, config) = (
            kind(&resources, "Deployment").unwrap(),
            kind(&resources, "ConfigMap").unwrap(),
        );
        accepts(&home, config["data"]["config.yaml"].as_str().unwrap());
        let pod = &deployment["spec"]["template"]["spec"];
        let volumes = pod["volumes"].as_array().unwrap();
        let containers = ["initContainers", "containers"];
        let containers = containers.iter().filter_map(|name| pod[*name].as_array());
        for container in containers.flatten() {
            for mount in container["volumeMounts"].as_array().unwrap() {
                let is_its = |volume: &&Value| volume["name"] == mount["name"];
                assert!(volumes.iter().any(|volume| is_its(&volume)), "{mount}");
            }
            // The command has these arguments, and says so by its help.
            let given = container["args"].as_array().unwrap();
            let words = given.iter().map(|word| word.as_str().unwrap());
            let help = home.command(words.chain(["--help"])).output().unwrap();
            assert!(help.status.success(), "{given:?}");
        }
        let budget = kind(&resources, "PodDisruptionBudget");
        assert_eq!(budget.is_some(), settings != ["replicas=1"]);
        let has_tls = settings.contains(&"tlsSecret=certificate");
        let probe = &pod["containers"][0]["readinessProbe"]["httpGet"]["scheme"];
        assert_eq!(probe, if has_tls { "HTTPS" } else { "HTTP" });
        let grace = if has_tls { 135 } else { 75 };
        assert_eq!(pod["terminationGracePeriodSeconds"], grace);
        assert_eq!(kind(&resources, "Ingress").is_some(), has_tls);
        let monitor = kind(&resources, "ServiceMonitor");
        assert_eq!(monitor.is_some(), has_tls);
        if let Some(monitor) = monitor {
            let endpoint = &monitor["spec"]["endpoints"][0];
            assert_eq!(endpoint["scheme"], "https");
            let server = &endpoint["tlsConfig"]["serverName"];
            assert_eq!(server, "contexture.example.org");
            // The job of the alert.
            let job = &endpoint["relabelings"][0];
            assert_eq!(
                (&job["targetLabel"], &job["replacement"]),
                (&"job".into(), &"contexture".into())
            );
            assert!(text("prometheus/alerts.yml").contains("up{job=\"contexture\"}"));
        }
    }
    // A setting that does not exist, one with which sessions would be lost, and a certificate that Prometheus cannot check.
    for (wrong, why) in [
        ("replica=3", "replica"),
        ("config.transcript=null", "postgres"),
        (
            "serviceMonitor.enabled=true,tlsSecret=certificate",
            "tlsConfig",
        ),
    ] {
        let refused = Command::new("helm")
            .args(["template", "release", &chart, "--set", wrong])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(why), "{said}");
    }
}

#[test]
fn systemd_accepts_the_unit() {
    let unit = text("systemd/contexture.service");
    assert!(unit.contains("\nUser=contexture\n") && unit.contains("\nExecReload="));
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("systemd-analyze is not installed, so the unit is not verified");
        return;
    }
    // It checks that the program exists, so it gets this one.
    let program = assert_cmd::cargo::cargo_bin!("contexture")
        .display()
        .to_string();
    let home = Home::new();
    let unit = home.put(
        "contexture.service",
        &unit.replace("/usr/bin/contexture", &program),
    );
    let output = Command::new("systemd-analyze")
        .args(["verify", &unit])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}
