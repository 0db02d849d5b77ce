// All work of the playground, away from the page. One call at a time; the page ends the worker to cancel one.

import init, * as vta from "#vta";
import type { Ran } from "./types.ts";

type Call = { id: number; method: keyof typeof methods; args: never[] };

const scope = globalThis as unknown as DedicatedWorkerGlobalScope & Record<string, unknown>;
scope["vtaProgress"] = (done: number, all: number) => scope.postMessage({ progress: [done, all] });
scope["vtaNote"] = (text: string) => scope.postMessage({ note: text });
let panic = "";
const logged = console.error;
console.error = (...words: unknown[]) => {
  panic = words.map(String).join(" ");
  logged(...words);
};

let program: vta.Program | undefined;
let network: vta.Network | undefined;
let design: vta.Design | undefined;
let exploration: vta.Exploration | undefined;
let quantizer: vta.Quantizer | undefined;

function opened<T>(handle: T | undefined): T {
  if (!handle) throw new Error("nothing is open");
  return handle;
}

const methods = {
  version: () => vta.version(),
  fault: (text: string) => JSON.parse(vta.fault(text) ?? "null"),
  program(text: string, machine: string): Ran {
    const next = new vta.Program(text, machine);
    program?.free();
    program = next;
    const overview = JSON.parse(next.overview());
    return { overview, end: JSON.parse(next.state(overview.last)) };
  },
  state: (cycle: number) => JSON.parse(opened(program).state(cycle)),
  exec: (name: string, text: string, machine: string) => JSON.parse(vta.exec(name, text, machine)),
  network(name: string, onnx: Uint8Array | undefined, machine: string) {
    const next = new vta.Network(name, onnx, machine);
    network?.free();
    network = next;
    return JSON.parse(next.info());
  },
  classify: (name: string, photo: Uint8Array) => JSON.parse(opened(network).classify(name, photo)),
  sample: (index: number) => JSON.parse(opened(network).sample(index)),
  cycles: () => JSON.parse(opened(network).cycles()),
  report: () => opened(network).report(),
  design(name: string, axes: string, machine: string) {
    const next = new vta.Design(name, axes, machine);
    design?.free();
    design = next;
    return next.points();
  },
  layer: (name: string, machine: string) => JSON.parse(vta.layer(name, machine)),
  measure: (point: number) => JSON.parse(opened(design).measure(point)),
  explore(name: string, axes: string, machine: string, most: number) {
    const next = new vta.Exploration(name, axes, machine, most);
    exploration?.free();
    exploration = next;
  },
  wanted: () => JSON.parse(opened(exploration).wanted()),
  explored: (point: number) => JSON.parse(opened(exploration).measure(point)),
  tell: (point: number, measured: unknown) => opened(exploration).tell(point, JSON.stringify(measured)),
  check: (name: string, onnx: Uint8Array, machine: string) => JSON.parse(vta.check_model(name, onnx, machine)),
  calibrate(name: string, onnx: Uint8Array) {
    quantizer?.free();
    quantizer = new vta.Quantizer(name, onnx);
  },
  image: (name: string, photo: Uint8Array) => opened(quantizer).add(name, photo),
  quantize: () => opened(quantizer).quantize(),
  /// For tests: what a fault of the program itself does.
  crash: () => vta.crash(),
};

/// The module is packed, so that any file server gives it as small as it is.
async function load(): Promise<void> {
  const packed = await fetch(new URL("vta.bin", import.meta.url));
  if (!packed.ok || !packed.body) throw new Error(`the playground's module: ${packed.status} ${packed.statusText}`);
  const headers = { "content-type": "application/wasm" };
  const module_or_path = new Response(packed.body.pipeThrough(new DecompressionStream("gzip")), { headers });
  await init({ module_or_path });
}

const ready = load();

scope.onmessage = async (event: MessageEvent<Call>) => {
  const { id, method, args } = event.data;
  try {
    await ready;
    const result = (methods[method] as (...args: never[]) => unknown)(...args);
    scope.postMessage({ id, result });
  } catch (error) {
    // What WebAssembly doesn't return from leaves its memory as it was in the middle of something.
    const lost = error instanceof WebAssembly.RuntimeError || error instanceof RangeError;
    const words = error instanceof Error ? error.message : String(error);
    scope.postMessage({ id, error: lost ? panic || words : words, lost });
  }
};
