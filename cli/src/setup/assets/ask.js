import { spawn } from "node:child_process";

const COMMAND = __COMMAND__;
const VARIABLES = __VARIABLES__;

/** Sends a question to `contexture hook __AGENT__` and returns its answer. `signal` stops the command. */
function ask(question, signal) {
  return new Promise((resolve, reject) => {
    const [program, ...options] = COMMAND;
    const child = spawn(program, [...options, "hook", "__AGENT__"], {
      env: { ...process.env, ...VARIABLES },
      stdio: ["pipe", "pipe", "pipe"],
      timeout: __TIMEOUT__,
      signal,
    });
    let out = "";
    let err = "";
    child.stdout.setEncoding("utf8").on("data", (text) => (out += text));
    child.stderr.setEncoding("utf8").on("data", (text) => (err += text));
    child.on("error", reject);
    // A command that ends early does not read its whole input; its exit code says why.
    child.stdin.on("error", () => {});
    child.on("close", (code) => {
      if (code !== 0) return reject(new Error(err.trim() || `it ended with ${code}`));
      try {
        resolve(JSON.parse(out));
      } catch (error) {
        reject(error);
      }
    });
    child.stdin.end(JSON.stringify(question));
  });
}
