//! How the value of a name is written: in configuration, code, markup, commands and prose.

use super::{Case, DIGITS, LOWER, Random, UPPER};

/// What is written, with a password (`{p}`), a key (`{k}`) or Base64 (`{b}`) in it.
const NOTATIONS: &[(&str, &str)] = &[
    // Configuration.
    ("env file", "DB_HOST=a\nDB_PASSWORD={p}\nDB_PORT=1"),
    ("quoted env file", "export DB_PASSWORD=\"{p}\""),
    (
        "Dockerfile ENV =",
        "FROM alpine\nENV DB_PASSWORD={p}\nRUN make",
    ),
    (
        "Dockerfile ENV",
        "FROM alpine\nENV DB_PASSWORD {p}\nRUN make",
    ),
    ("Dockerfile ENV of a key", "ENV SERVICE_TOKEN {k}"),
    ("Dockerfile ARG", "ARG NPM_TOKEN={k}"),
    ("YAML", "db:\n  user: bo\n  password: {p}\n"),
    ("YAML in quotes", "password: '{p}'"),
    ("YAML block", "password: |\n  {p}\nuser: bo"),
    ("YAML folded block", "user: bo\npassword: >-\n    {p}\n"),
    ("YAML block of a key", "  api_key: |-\n    {k}\n"),
    (
        "YAML list of pairs",
        "env:\n  - name: DB_USER\n    value: bo\n  - name: DB_PASSWORD\n    value: {p}\n  - name: A\n    value: b",
    ),
    (
        "YAML pair the other way",
        "env:\n  - value: {p}\n    name: DB_PASSWORD\n",
    ),
    (
        "quoted YAML pair",
        "- name: \"DB_PASSWORD\"\n  value: \"{p}\"",
    ),
    ("YAML flow", "db: {user: bo, password: {p}}"),
    ("YAML flow pair", "- {name: DB_PASSWORD, value: {p}}"),
    ("compose", "environment:\n  - POSTGRES_PASSWORD={p}"),
    (
        "Kubernetes secret",
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n  user-pw: {b}\n",
    ),
    (
        "Kubernetes secret the other way",
        "apiVersion: v1\nstringData:\n  pw: {p}\nkind: Secret\n",
    ),
    ("TOML", "[db]\npassword = \"{p}\""),
    ("INI", "[client]\nuser = bo\npassword = {p}"),
    ("properties", "spring.datasource.password={p}"),
    (
        "HCL",
        "provider \"x\" {\n  user     = \"bo\"\n  password = \"{p}\"\n}",
    ),
    (
        "Terraform variable",
        "variable \"db_password\" {\n  type    = string\n  default = \"{p}\"\n}",
    ),
    ("tfvars", "db_password=\"{p}\""),
    ("JSON", "{\"user\": \"bo\", \"password\": \"{p}\"}"),
    (
        "JSON pair",
        "{\"name\": \"DB_PASSWORD\", \"value\": \"{p}\"}",
    ),
    (
        "JSON pair with more between",
        "{\"name\": \"DB_PASSWORD\", \"type\": \"text\", \"meta\": {\"a\": 1}, \"value\": \"{p}\"}",
    ),
    (
        "JSON pair the other way",
        "{\"value\": \"{p}\", \"enabled\": true, \"key\": \"password\"}",
    ),
    (
        "ECS task",
        "{\"environment\": [{\"value\": \"{p}\", \"name\": \"DB_PASSWORD\"}, {\"name\": \"A\", \"value\": \"b\"}]}",
    ),
    (
        "CloudFormation",
        "{\"ParameterKey\": \"DBPassword\", \"ParameterValue\": \"{p}\"}",
    ),
    (
        "Postman",
        "{\"auth\": {\"basic\": [{\"key\": \"password\", \"value\": \"{p}\", \"type\": \"string\"}]}}",
    ),
    (
        "pair in code",
        "env.push({ name: 'DB_PASSWORD', value: '{p}' });",
    ),
    (
        "pair in broken JSON",
        "[{\"name\": \"DB_PASSWORD\", \"value\": \"{p}\"}, {\"name",
    ),
    (
        "pair in broken JSON the other way",
        "[{\"value\": \"{p}\", \"name\": \"DB_PASSWORD\"}, {\"name",
    ),
    (
        "JWK",
        "{\"kty\":\"RSA\",\"n\":\"abc\",\"e\":\"AQAB\",\"d\":\"{k}\"}",
    ),
    (
        "symmetric JWK",
        "{\"kty\":\"oct\",\"k\":\"{k}\",\"alg\":\"HS256\"}",
    ),
    (
        "JWK in text",
        "the key is {\"kty\":\"RSA\",\"d\": \"{k}\" and so on",
    ),
    (
        "kubeconfig key",
        "users:\n- name: bo\n  user:\n    client-certificate-data: LS0t\n    client-key-data: {b}",
    ),
    ("kubeconfig token", "users:\n- user:\n    token: {k}"),
    (
        "WireGuard",
        "[Interface]\nPrivateKey = {b}\nAddress = 10.0.0.2/32",
    ),
    ("WireGuard shared key", "[Peer]\nPresharedKey = {b}"),
    ("pgpass", "db.example.com:5432:shop:bo:{p}"),
    ("pgpass for any database", "localhost:*:*:bo:{p}"),
    ("netrc", "machine api.example.com login bo password {p}"),
    (
        "netrc in lines",
        "machine api.example.com\n  login bo\n  password {p}",
    ),
    ("npmrc", "//registry.npmjs.org/:_authToken={k}"),
    ("npmrc password", "//registry.example.com/:_password={b}"),
    (
        "wpa_supplicant",
        "network={\n  ssid=\"home\"\n  psk=\"{p}\"\n}",
    ),
    ("my.cnf", "[client]\nuser=root\npassword=\"{p}\""),
    ("gradle", "signingPassword={p}"),
    ("NuGet", "<add key=\"ClearTextPassword\" value=\"{p}\" />"),
    (
        "Maven",
        "<server><id>a</id><username>bo</username><password>{p}</password></server>",
    ),
    (
        "web.config",
        "<add name=\"db\" connectionString=\"Server=a;User Id=bo;Password={p};\" />",
    ),
    ("app settings", "<add key=\"SmtpPassword\" value=\"{p}\"/>"),
    ("XML attribute", "<user name=\"bo\" password=\"{p}\" />"),
    (
        "XML attribute before its name",
        "<param value=\"{p}\" name=\"password\"/>",
    ),
    (
        "XML element",
        "<config>\n  <password>{p}</password>\n</config>",
    ),
    (
        "XML element with attributes",
        "<dbPassword type=\"string\" encrypted=\"false\">{p}</dbPassword>",
    ),
    ("XML element in lines", "<password>\n  {p}\n</password>"),
    ("XML CDATA", "<password><![CDATA[{p}]]></password>"),
    (
        "XML namespace",
        "<wsse:Password Type=\"PasswordText\">{p}</wsse:Password>",
    ),
    (
        "XML pair",
        "<property><name>db.password</name><value>{p}</value></property>",
    ),
    ("XML entry", "<entry key=\"password\">{p}</entry>"),
    (
        "Spring property",
        "<property name=\"password\" value=\"{p}\"/>",
    ),
    ("Android string", "<string name=\"api_key\">{k}</string>"),
    ("plist", "<key>password</key>\n<string>{p}</string>"),
    (
        "HTML input",
        "<input type=\"hidden\" name=\"password\" value=\"{p}\">",
    ),
    (
        "HTML input the other way",
        "<input value=\"{p}\" type=\"password\" name=\"password\">",
    ),
    ("HTML escapes", "{&quot;password&quot;: &quot;{p}&quot;}"),
    ("CSV", "user,password,city\nbo,{p},Rome\n"),
    ("CSV in quotes", "\"user\",\"password\"\n\"bo\",\"{p}\"\n"),
    ("CSV with semicolons", "user;api_token\nbo;{k}\n"),
    ("TSV", "user\tpassword\nbo\t{p}\n"),
    (
        "Markdown table",
        "| User | Password | City |\n|---|---|---|\n| al | - | Rome |\n| bo | {p} | Rome |\n",
    ),
    (
        "Markdown table of keys",
        "| Name | API key |\n| --- | --- |\n| a | `{k}` |\n",
    ),
    ("Markdown list", "- **Password:** `{p}`"),
    ("Markdown heading", "- Password: **{p}**"),
    // Code.
    ("Python", "password = \"{p}\""),
    ("typed Python", "password: str = \"{p}\""),
    ("Python argument", "connect(user=\"bo\", password=\"{p}\")"),
    ("Python default", "os.environ.get(\"DB_PASSWORD\", \"{p}\")"),
    ("Python environment", "os.environ['DB_PASSWORD'] = '{p}'"),
    ("JavaScript", "const password = '{p}';"),
    ("JavaScript object", "{ user: 'bo', password: '{p}' }"),
    (
        "JavaScript fallback",
        "const password = process.env.DB_PASSWORD || '{p}';",
    ),
    ("typed TypeScript", "const password: string = \"{p}\";"),
    ("Go", "password := \"{p}\""),
    ("typed Go", "var password string = \"{p}\""),
    ("Rust", "let password: &str = \"{p}\";"),
    ("Java", "private String password = \"{p}\";"),
    ("Java setter", "config.setPassword(\"{p}\");"),
    ("C", "char password[] = \"{p}\";"),
    ("C macro", "#define API_TOKEN \"{k}\""),
    ("C#", "var password = @\"{p}\";"),
    ("Ruby", "password: \"{p}\","),
    ("Ruby rocket", ":password => \"{p}\""),
    ("PHP", "define('DB_PASSWORD', '{p}');"),
    ("PHP array", "'password' => '{p}',"),
    ("Kotlin", "val password: String = \"{p}\""),
    ("SQL", "CREATE USER bo WITH PASSWORD '{p}';"),
    (
        "MySQL",
        "ALTER USER 'bo'@'%' IDENTIFIED BY 'x', password = '{p}'",
    ),
    ("PowerShell environment", "$env:DB_PASSWORD = \"{p}\""),
    (
        "PowerShell option",
        "Connect-Server -User bo -Password \"{p}\"",
    ),
    (
        "PowerShell bare option",
        "Connect-Server -Password {p} -Force",
    ),
    (
        "PowerShell secure string",
        "$s = ConvertTo-SecureString \"{p}\" -AsPlainText -Force",
    ),
    (
        "PowerShell secure string by name",
        "ConvertTo-SecureString -String '{p}' -AsPlainText",
    ),
    ("batch", "set DB_PASSWORD={p}"),
    ("setx", "setx DB_PASSWORD {p}"),
    ("csh", "setenv DB_PASSWORD {p}"),
    ("fish", "set -x DB_PASSWORD={p}"),
    // Commands.
    ("mysql", "mysql -u root -p{p} shop"),
    ("quoted mysql", "mysqldump -uroot -p'{p}' shop > a.sql"),
    ("mysql option", "mysql --user=root --password={p} shop"),
    ("curl", "curl -u bo:{p} https://a.example"),
    ("quoted curl", "curl -sS -u \"bo:{p}\" https://a.example"),
    ("curl option", "curl --user bo:{p} https://a.example"),
    ("curl proxy", "curl --proxy-user bo:{p} https://a.example"),
    ("wget", "wget --user=bo --password={p} https://a.example"),
    (
        "wget for HTTP",
        "wget --http-password={p} https://a.example",
    ),
    ("psql", "psql postgres://bo:{p}@db/shop"),
    ("PGPASSWORD", "PGPASSWORD={p} psql -h db"),
    ("redis", "redis-cli -h cache -a {p} ping"),
    ("sshpass", "sshpass -p {p} ssh bo@a.example"),
    ("attached sshpass", "sshpass -p'{p}' ssh bo@a.example"),
    ("mongo", "mongosh --host a -u bo -p {p}"),
    ("mongodump", "mongodump --username bo --password {p}"),
    ("ldapsearch", "ldapsearch -x -D cn=admin -w {p} -b dc=a"),
    (
        "docker login",
        "docker login -u bo -p {p} registry.example.com",
    ),
    ("helm login", "helm registry login a.example -u bo -p {p}"),
    ("az login", "az login -u bo@a.example -p {p}"),
    ("openssl", "openssl rsa -in a.pem -passin pass:{p}"),
    ("openssl key", "openssl enc -aes-256-cbc -k {p} -in a"),
    ("smbclient", "smbclient //a/b -U bo%{p}"),
    ("sqlcmd", "sqlcmd -S a -U sa -P {p} -Q 'select 1'"),
    ("attached sqlcmd", "sqlcmd -S a -U sa -P'{p}'"),
    ("sqlplus", "sqlplus scott/{p}@//db:1521/x"),
    ("unzip", "unzip -P {p} a.zip"),
    ("7z", "7z x -p{p} a.7z"),
    ("keytool", "keytool -list -keystore a.jks -storepass {p}"),
    ("gpg", "gpg --batch --passphrase {p} -d a"),
    ("xfreerdp", "xfreerdp /v:a /u:bo /p:{p}"),
    ("mosquitto", "mosquitto_pub -h a -u bo -P {p} -t x"),
    ("lftp", "lftp -u bo,{p} a.example"),
    ("httpie", "http -a bo:{p} a.example"),
    ("sudo", "echo {p} | sudo -S apt update"),
    ("chpasswd", "echo \"bo:{p}\" | chpasswd"),
    (
        "password from a pipe",
        "echo {p} | docker login -u bo --password-stdin",
    ),
    (
        "kubectl",
        "kubectl create secret generic a --from-literal=password={p}",
    ),
    (
        "kubectl token",
        "kubectl config set-credentials bo --token={k}",
    ),
    ("helm value", "helm install a b --set auth.password={p}"),
    (
        "aws configure",
        "aws configure set aws_secret_access_key {b}",
    ),
    ("git config", "git config user.password {p}"),
    ("ansible", "ansible all -e ansible_password={p}"),
    (
        "words of a command",
        "[\"redis-cli\", \"-a\", \"{p}\", \"ping\"]",
    ),
    (
        "words of a shell",
        "{\"command\": [\"bash\", \"-lc\", \"mysql -u root -p{p} shop\"]}",
    ),
    // Headers, URLs, DSNs.
    ("bearer", "Authorization: Bearer {k}"),
    ("custom header", "X-Vault-Token: {k}"),
    ("own header", "X-Acme-Api-Key: {k}"),
    (
        "header in a dictionary",
        "headers = {\"X-Auth-Token\": \"{k}\"}",
    ),
    ("proxy header", "Proxy-Authorization: Basic {b}"),
    ("cookie", "Cookie: lang=de; sessionid={k}"),
    ("set-cookie", "Set-Cookie: auth={k}; Path=/; Secure"),
    ("query", "GET /a?user=bo&access_token={k} HTTP/1.1"),
    ("form", "grant_type=password&username=bo&password={p}"),
    ("amqp", "amqps://bo:{p}@mq.example.com/v"),
    (
        "mongodb+srv",
        "mongodb+srv://bo:{p}@a.example.com/x?retryWrites=true",
    ),
    ("redis URL", "redis://:{p}@cache:6379/0"),
    ("ftp", "ftp://bo:{p}@a.example/x"),
    ("any scheme", "clickhouse+native://bo:{p}@a.example:9000/x"),
    ("Go DSN", "bo:{p}@tcp(db:3306)/shop?parseTime=true"),
    ("libpq", "host=db port=5432 user=bo password={p} dbname=x"),
    ("ODBC", "Driver={SQL Server};Server=a;Uid=sa;Pwd={p};"),
    ("JDBC", "jdbc:mysql://db/shop?user=bo&password={p}"),
    ("Oracle", "jdbc:oracle:thin:scott/{p}@db:1521:x"),
    (
        "Redis of Azure",
        "a.redis.cache.windows.net:6380,password={b},ssl=True",
    ),
    // Prose.
    ("English", "The password is {p}."),
    (
        "English with words between",
        "The password for the staging database is {p}, do not share it.",
    ),
    ("English, changed", "I changed the password to {p} today"),
    ("English, now", "the root password is now {p}"),
    (
        "English, backwards",
        "log in as root and use {p} as the password",
    ),
    ("English, quoted", "my password is “{p}”"),
    ("English, in the next line", "my password is\n{p}"),
    ("English, colon and line", "Password:\n{p}"),
    ("English passphrase", "the passphrase of the key is `{p}`"),
    ("English token", "your access token is {k}."),
    ("English API key", "the API key is: {k}"),
    ("German", "Passwort: {p}"),
    ("German sentence", "Das Passwort für den Server lautet {p}."),
    ("German Kennwort", "Das Kennwort ist {p}"),
    ("French", "le mot de passe est {p}"),
    ("French colon", "Mot de passe : {p}"),
    ("Spanish", "la contraseña es {p}"),
    (
        "Spanish with words between",
        "La contraseña del servidor es {p}",
    ),
    ("Portuguese", "a senha é {p}"),
    ("Italian", "la password è {p}"),
    ("Russian", "пароль {p}"),
    ("Russian sentence", "Пароль от базы: {p}"),
    ("Russian dash", "пароль — {p}"),
    ("Chinese", "密码是{p}"),
    ("Chinese, changed", "数据库的密码已经改成 {p}，请保密"),
    ("Chinese colon", "密码：{p}。"),
    ("traditional Chinese", "密碼為{p}"),
    ("Japanese", "パスワードは{p}です"),
    ("Korean", "비밀번호는 {p} 입니다"),
    ("Hindi", "पासवर्ड {p} है"),
    ("Arabic", "كلمة المرور هي {p}"),
    ("Indonesian", "kata sandi adalah {p}"),
    ("Turkish", "şifre: {p}"),
    ("Polish", "hasło to {p}"),
    ("Vietnamese", "mật khẩu là {p}"),
    // What is not seen.
    (
        "colours between",
        "\u{1b}[32mDB_PASSWORD\u{1b}[0m=\u{1b}[33m{p}\u{1b}[0m",
    ),
    ("colours around the sign", "password\u{1b}[2m:\u{1b}[0m {p}"),
    (
        "written colours",
        "\\x1b[32mpassword\\x1b[0m=\\x1b[33m{p}\\x1b[0m",
    ),
    ("zero width", "password\u{200b}=\u{200b}{p}"),
    ("byte order mark", "\u{feff}password={p}"),
    // Files of keys.
    (
        "PuTTY",
        "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n{b}\nPrivate-MAC: 00",
    ),
    ("Ansible vault password", "ansible_become_pass: {p}"),
    (
        "azure function",
        "AzureWebJobsStorage=DefaultEndpointsProtocol=https;AccountName=a;AccountKey={b}",
    ),
    ("sidekiq", "BUNDLE_GEMS__CONTRIBSYS__COM={p}"),
];

/// A secret in every notation.
pub fn notations(random: &mut Random) -> Vec<Case> {
    let alnum = format!("{LOWER}{UPPER}{DIGITS}");
    let written = include_str!("notations.txt").lines().skip(1);
    let written = written.map(|row| ("written", unescaped(row)));
    let named = NOTATIONS
        .iter()
        .map(|(kind, text)| (*kind, (*text).to_owned()));
    named
        .chain(written)
        .map(|(kind, text)| {
            let password = random.of(LOWER, 5) + &random.of(DIGITS, 3) + "!" + &random.of(UPPER, 2);
            let base64 = random.of(&alnum, 43) + "=";
            let secret = match (text.contains("{p}"), text.contains("{b}")) {
                (true, _) => password,
                (_, true) => base64,
                _ => format!("{}7b", random.of(&alnum, 40)),
            };
            let text = text
                .replace("{p}", &secret)
                .replace("{b}", &secret)
                .replace("{k}", &secret);
            Case {
                kind,
                text,
                secrets: vec![secret],
            }
        })
        .collect()
}

/// A row of `notations.txt` without its escapes.
fn unescaped(row: &str) -> String {
    let text = row.replace("\\\\", "\0").replace("\\n", "\n");
    let text = text.replace("\\t", "\t").replace("\\r", "\r");
    let mut parts = text.split("\\u");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = u32::from_str_radix(&part[..4], 16).ok();
        text.extend(code.and_then(char::from_u32));
        text.push_str(&part[4..]);
    }
    text.replace('\0', "\\")
}

/// The notations in which the secret is a password, cut where a message may be cut: before the value, or within it.
pub fn blocks(random: &mut Random) -> Vec<(&'static str, [String; 2], String)> {
    let password = random.of(LOWER, 5) + &random.of(DIGITS, 3) + "!" + &random.of(UPPER, 2);
    let alnum = format!("{LOWER}{UPPER}{DIGITS}");
    let key = ["gh", "p_"].concat() + &random.of(&alnum, 34) + "7b";
    let (first, second) = key.split_at(20);
    vec![
        (
            "name and value",
            ["the password is".to_owned(), password.clone()],
            password.clone(),
        ),
        (
            "name and value with a colon",
            ["Password:".to_owned(), password.clone()],
            password.clone(),
        ),
        (
            "assigned",
            ["export DB_PASSWORD=".to_owned(), password.clone()],
            password,
        ),
        (
            "cut key",
            [format!("use {first}"), second.to_owned()],
            second.to_owned(),
        ),
    ]
}
