import assert from "node:assert/strict";
import { test } from "node:test";

import { range, specText, tidy, yaml } from "../../chalicelib/console/lib/yaml_text.js";

test("values as YAML", () => {
  assert.equal(yaml({ a: 1, b: "text", c: true, d: null, e: [], f: {} }), "a: 1\nb: text\nc: true\nd: null\ne: []\nf: {}\n");
  assert.equal(yaml({ a: { b: [{ c: 1, d: "x" }, { c: 2 }] } }), "a:\n  b:\n    - c: 1\n      d: x\n    - c: 2\n");
  assert.equal(yaml({ short: ["a", "b"], long: ["python train.py --epochs 100 --batch 64", "echo done"] }), 'short: [a, b]\nlong:\n  - python train.py --epochs 100 --batch 64\n  - echo done\n');
  assert.equal(yaml([["a"], ["b"]]), "- [a]\n- [b]\n");
});

test("what YAML would read as something else is quoted", () => {
  for (const text of ["true", "No", "null", "12", "1.5", "1e3", "", " x", "x ", "a: b", "- a", "#x", "{x}", "'", "*x", "@x", "a\u0001", "8:80"]) {
    assert.equal(yaml({ key: text }), `key: ${JSON.stringify(text)}\n`);
  }
  for (const text of ["8GB..", "2..4", "1d", "train-7", "/work", "$HOME/x", "a b"]) assert.equal(yaml({ key: text }), `key: ${text}\n`);
});

test("texts of several lines are blocks", () => {
  assert.equal(yaml({ commands: ["a\nb\n", "c"] }), "commands:\n  - |\n    a\n    b\n  - c\n");
  assert.equal(yaml({ text: "a\n\nb" }), "text: |-\n  a\n\n  b\n");
  assert.equal(yaml({ text: " a\nb\n" }), "text: |2\n   a\n  b\n");
  assert.equal(yaml({ text: "a\u001b\nb" }), 'text: "a\\u001b\\nb"\n');
});

const SPEC = {
  name: "train", type: "task", env: {}, priority: 0, home_dir: "/root", max_price: null, commands: ["python train.py"], ports: [{ local_port: 80, container_port: 8000 }, { local_port: 22, container_port: 22 }],
  retry: { on_events: ["no-capacity"], duration: 86400 }, auth: false, replicas: { min: 1, max: 2 },
  resources: {
    cpu: { arch: null, count: { min: 2, max: null } }, memory: { min: 64, max: null }, shm_size: null, disk: { size: { min: 100, max: null } },
    gpu: { vendor: null, name: ["H100", "H200"], count: { min: 8, max: 8 }, memory: { min: 80, max: null }, total_memory: null, compute_capability: null },
  },
};

test("a configuration is as somebody would have written it", () => {
  assert.equal(specText(SPEC), `type: task
name: train
commands:
  - python train.py
ports: ["80:8000", 22]
retry:
  on_events: [no-capacity]
  duration: 86400
auth: false
replicas: 1..2
resources:
  memory: 64GB..
  gpu: H100,H200:80GB..:8
`.replace("H100,H200:80GB..:8", '"H100,H200:80GB..:8"'));
  assert.deepEqual(tidy({ type: "task", resources: { gpu: { vendor: "amd", count: { min: 1, max: null } } } }), { type: "task", resources: { gpu: { vendor: "amd", count: "1.." } } });
});

test("ranges", () => {
  assert.deepEqual([range({ min: 1, max: 1 }, ""), range({ min: null, max: 4 }, "GB"), range(null, ""), range(3, "GB")], ["1", "..4GB", null, "3GB"]);
});
