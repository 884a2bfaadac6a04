import assert from "node:assert/strict";
import { test } from "node:test";
import { hintAt, keysAt } from "../../chalicelib/console/lib/schema.js";
import { TEMPLATES, taskFor } from "../../chalicelib/console/lib/templates.js";
import { newLine, placeAt, topValue } from "../../chalicelib/console/lib/yaml_place.js";

/** The place of the mark `|` in a text. */
function marked(text) {
  const at = text.indexOf("|");
  return placeAt(text.replace("|", ""), at);
}

test("the path to a line is made of the keys above that are indented less", () => {
  assert.deepEqual(marked("type: task\nresources:\n  gpu: |").path, ["resources"]);
  assert.deepEqual(marked("type: task\nresources:\n  gpu:\n    name: |").path, ["resources", "gpu"]);
  assert.deepEqual(marked("type: task\nna|me: x").path, []);
  assert.equal(marked("type: task\nna|me: x").key, "name");
});

test("an empty line belongs to what its cursor is below", () => {
  assert.deepEqual(marked("type: task\nresources:\n  cpu: 1\n  |\n").path, ["resources"]);
  assert.deepEqual(marked("type: task\nresources:\n  cpu: 1\n|\n").path, []);
});

test("items of lists are parts of the path", () => {
  assert.deepEqual(marked("type: task\ncommands:\n  - echo |").path, ["commands", 0]);
  assert.deepEqual(marked("type: service\nprobes:\n- type: http\n  url: |").path, ["probes", 0]);
  assert.deepEqual(marked("type: service\nprobes:\n  - type: http\n    headers:\n      - name: |").path, ["probes", 0, "headers", 0]);
});

test("comments and empty lines between are passed over", () => {
  assert.deepEqual(marked("resources: # what it needs\n\n  # a comment\n  gpu: |").path, ["resources"]);
});

test("type and name are read with or without quotes and comments", () => {
  assert.equal(topValue('type: "task" # why\n', "type"), "task");
  assert.equal(topValue("name: 'a b'\n", "name"), "a b");
  assert.equal(topValue("  name: inner\nname: outer # x\n", "name"), "outer");
  assert.equal(topValue("commands: []\n", "name"), "");
});

test("Enter indents as the line before, deeper after a key, and goes on with a list", () => {
  assert.equal(newLine("resources:", 10), "\n  ");
  assert.equal(newLine("resources:\n  gpu: 1", 19), "\n  ");
  assert.equal(newLine("commands:\n  - echo a", 20), "\n  - ");
  assert.equal(newLine("type: task", 10), "\n");
});

const SCHEMA = {
  properties: { type: { enum: ["task", "volume"] } },
  allOf: [
    { if: { properties: { type: { const: "task" } } }, then: { $ref: "#/$defs/Task" } },
    { if: { properties: { type: { const: "volume" } } }, then: { required: ["backend"], properties: { backend: { enum: ["aws", "gcp"] } } } },
    { if: { properties: { type: { const: "volume" }, backend: { const: "aws" } } }, then: { $ref: "#/$defs/AwsVolume" } },
  ],
  $defs: {
    Task: { properties: { type: { const: "task" }, resources: { $ref: "#/$defs/Resources", description: "What it needs." }, env: { anyOf: [{ type: "object", additionalProperties: { type: "string" } }, { type: "array", items: { type: "string" } }] } }, required: ["type"] },
    Resources: { description: "Machines.", properties: { gpu: { anyOf: [{ type: "integer" }, { type: "string", examples: ["H100:8"] }], description: "GPUs." }, spot: { type: ["boolean", "null"] } } },
    AwsVolume: { properties: { availability_zone: { type: "string", description: "Its zone." } } },
  },
};

test("a key's hint says what it means, what it takes and an example", () => {
  const hint = hintAt(SCHEMA, "task", "", ["resources"], "gpu");
  assert.deepEqual([hint.about, hint.kinds, hint.examples], ["GPUs.", "number, text", ["H100:8"]]);
  assert.equal(hintAt(SCHEMA, "task", "", [], "resources").about, "What it needs.");
  assert.equal(hintAt(SCHEMA, "task", "", [], "nothing"), null);
});

test("keys are those of the type, and of a volume's backend", () => {
  assert.deepEqual(keysAt(SCHEMA, "task", "", []).map((hint) => hint.name), ["type", "resources", "env"]);
  assert.deepEqual(keysAt(SCHEMA, "volume", "aws", []).map((hint) => hint.name), ["type", "availability_zone"]);
  assert.deepEqual(keysAt(SCHEMA, "volume", "", []).map((hint) => hint.values), [["task", "volume"], ["aws", "gcp"]]);
  assert.deepEqual(keysAt(SCHEMA, "", "", []).map((hint) => hint.values), [["task", "volume"]]);
});

test("what an offer needs becomes a task", () => {
  const text = taskFor({ gpu: "H100:80GB:8", backend: "aws", region: "us-east-1", spot: "spot" });
  assert.match(text, /^ {2}gpu: H100:80GB:8$/m);
  assert.match(text, /^backends: \[aws\]$/m);
  assert.equal(topValue(text, "spot_policy"), "spot");
});

test("every template has a type and a name", () => {
  for (const { key, text } of TEMPLATES) assert.ok(topValue(text, "type") && topValue(text, "name"), key);
});
