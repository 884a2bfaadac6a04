// Configurations to begin with. Each runs as it is, but for what only its user can know.

/** @typedef {{key: string, title: string, text: string}} Template */

/** @type {Template[]} */
export const TEMPLATES = [
  {
    key: "task",
    title: "Task",
    text: `type: task
name: train
python: "3.12"
commands:
  - echo "hello from $(hostname)"
resources:
  cpu: 1..
  memory: 1GB..
  disk: 10GB..
`,
  },
  {
    key: "dev-environment",
    title: "Dev environment",
    text: `type: dev-environment
name: dev
python: "3.12"
ide: vscode
inactivity_duration: 2h
resources:
  cpu: 1..
  memory: 1GB..
  disk: 10GB..
`,
  },
  {
    key: "service",
    title: "Service",
    text: `type: service
name: web
python: "3.12"
commands:
  - exec python -m http.server $DSTACK_SERVICE_PORT
port: 8000
replicas: 1
resources:
  cpu: 1..
  memory: 1GB..
  disk: 10GB..
`,
  },
  {
    key: "model",
    title: "Service with a model",
    text: `type: service
name: llama
image: vllm/vllm-openai:latest
env:
  - HF_TOKEN=\${{ secrets.hf_token }}
commands:
  - exec vllm serve meta-llama/Llama-3.1-8B-Instruct --port 8000
port: 8000
model: meta-llama/Llama-3.1-8B-Instruct
replicas: 0..2
scaling:
  metric: queue
  target: 8
resources:
  gpu: 24GB..
  disk: 100GB..
`,
  },
  {
    key: "fleet",
    title: "Fleet",
    text: `type: fleet
name: pool
nodes: 0..4
idle_duration: 30m
resources:
  gpu: 24GB..
`,
  },
  {
    key: "volume",
    title: "Volume",
    text: `type: volume
name: data
backend: aws
region: us-east-1
size: 100GB
`,
  },
];

/** The first name for another of something: `train-2` after `train`, and `train-3` after both.
 * @param {string} name @param {Set<string>} taken */
export function freeName(name, taken) {
  const before = name.replace(/-\d+$/, "");
  const base = taken.has(before) ? before : name;
  let number = 2;
  while (taken.has(`${base}-${number}`)) number++;
  return `${base}-${number}`;
}

/** The task that an offer is for, if the query of a link says which. @param {Record<string, string>} query */
export function taskFor({ gpu, backend, region, spot }) {
  const lines = ["type: task", "name: trial", 'python: "3.12"', "commands:", '  - echo "hello from $(hostname)"'];
  if (gpu) lines.push("resources:", `  gpu: ${gpu}`);
  if (backend) lines.push(`backends: [${backend}]`);
  if (region) lines.push(`regions: [${region}]`);
  if (spot) lines.push(`spot_policy: ${spot}`);
  return `${lines.join("\n")}\n`;
}
