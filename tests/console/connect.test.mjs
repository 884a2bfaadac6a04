import assert from "node:assert/strict";
import { test } from "node:test";

import { connectSteps, isEditorLink, portsOf } from "../../chalicelib/console/lib/connect.js";

const run = (spec, more = {}) => ({ name: "dev", service_url: null, spec, ...more });
const SERVER = "https://gpu.example.com/";
const CONNECTION = { ide_name: "VS Code", attached_ide_url: "vscode://vscode-remote/ssh-remote+dev/work", attached_ssh_command: ["ssh", "dev"] };
const titles = (...given) => connectSteps(...given).map((step) => step.title);

test("a dev environment has the editor's link", () => {
  const steps = connectSteps(run({ type: "dev-environment" }), { server: SERVER, connection: CONNECTION });
  assert.deepEqual(steps.map((step) => step.command ?? step.link?.href), ["dstack attach dev", "ssh dev", CONNECTION.attached_ide_url]);
  const odd = { ...CONNECTION, attached_ide_url: "javascript:alert(1)" };
  assert.deepEqual(titles(run({ type: "dev-environment" }), { server: SERVER, connection: odd }), ["Attach", "Log in"]);
});

test("a task has its ports", () => {
  const spec = { type: "task", ports: [{ local_port: 18080, container_port: 8888 }, { local_port: null, container_port: 22 }] };
  assert.deepEqual(portsOf(spec), [{ local: 18080, remote: 8888 }, { local: null, remote: 22 }]);
  assert.match(connectSteps(run(spec), { server: SERVER }).at(-1).text, /localhost:18080 leads to port 8888 of the job, a free port leads to port 22/);
});

test("a service has its address, at the server where it has no gateway", () => {
  const [step] = connectSteps(run({ type: "service", auth: true }, { service_url: "/proxy/services/main/web/" }), { server: SERVER });
  assert.equal(step.link.href, "https://gpu.example.com/proxy/services/main/web/");
  assert.match(step.command, /^curl https:\/\/gpu\.example\.com\/proxy\/services\/main\/web\/ .*Authorization/s);
  const [open] = connectSteps(run({ type: "service", auth: false }, { service_url: "https://chat.example.com" }), { server: SERVER });
  assert.equal(open.command, "curl https://chat.example.com/");
  assert.deepEqual(titles(run({ type: "service" }, { service_url: "javascript:alert(1)" }), { server: SERVER }), ["Attach", "Log in"]);
});

test("where nobody can log in, it says why", () => {
  assert.deepEqual(connectSteps(run({ type: "task" }), { server: SERVER, problem: "The image has no shell." }), [{ title: "Logging in", text: "The image has no shell." }]);
});

test("only editors' links are links", () => {
  for (const good of ["vscode://x", "cursor://vscode-remote/ssh-remote+a/b", "zed://ssh/dev/work"]) assert.ok(isEditorLink(good));
  for (const bad of ["javascript:alert(1)", "https://x", "vscode://a b", ""]) assert.ok(!isEditorLink(bad));
});
