// Bundles the site: `node build.mjs BINDINGS OUT`. The bindings are those of wasm-bindgen for the web.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

/// The most that is loaded, compressed.
const MOST_BYTES = 3_000_000;

const [bindings, out] = process.argv.slice(2);
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const { metafile } = await build({
  metafile: true,
  entryPoints: ["site/src/main.ts", "site/src/worker.ts", "site/main.css"],
  outdir: out,
  entryNames: "[name]",
  alias: { "#vta": join(bindings, "vta_web.js") },
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none",
});
// What `pyvta` shows in notebooks, with the style of the page: a file of the package, so that nobody needs node for it.
const style = await build({ entryPoints: ["site/main.css"], bundle: true, minify: true, write: false });
const text = style.outputFiles[0].text.replaceAll(/:root|\bbody\b/g, ":host");
await build({
  entryPoints: ["site/src/notebook.ts"],
  outfile: "../python/pyvta/stepper.js",
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none",
  define: { STYLE: JSON.stringify(text) },
});
await build({
  entryPoints: ["tests/exact.test.ts", "tests/hostile.test.ts", "tests/lessons.test.ts", "tests/link.test.ts", "tests/page.test.ts"],
  outdir: `${out}-tests`,
  alias: { "#vta": join(bindings, "vta_web.js") },
  bundle: true,
  format: "esm",
  platform: "node",
  target: "node20",
  external: ["playwright-core", "axe-core"],
  outExtension: { ".js": ".mjs" },
});
// The report's script may run in its frame, and no other that a page carries.
const script = readFileSync("../app/src/report/html/sort.js");
const hash = createHash("sha256").update(script).digest("base64");
const page = readFileSync("site/index.html", "utf8").replace("REPORT_SCRIPT", `'sha256-${hash}'`);
writeFileSync(join(out, "index.html"), page);
writeFileSync(join(out, "vta.bin"), gzipSync(readFileSync(join(bindings, "vta_web_bg.wasm")), { level: 9 }));

// Licences of what is bundled, for whoever passes the site on. Pages don't load them.
const packages = Object.keys(metafile.inputs).flatMap((input) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input)?.[1] ?? []);
const texts = [...new Set(packages)].sort().map((name) => `${name}\n\n${readFileSync(`node_modules/${name}/LICENSE`, "utf8")}`);
const crates = readFileSync("../THIRD-PARTY.txt", "utf8");
const licences = [readFileSync("../LICENSE", "utf8"), crates, ...texts].join(`\n${"=".repeat(80)}\n\n`);

// What is loaded, as a server with compression sends it.
let total = 0;
for (const name of readdirSync(out)) {
  const bytes = readFileSync(join(out, name));
  const size = name === "vta.bin" ? bytes.length : gzipSync(bytes, { level: 9 }).length;
  console.log(`${String(size).padStart(9)} bytes of ${name}`);
  total += size;
}
console.log(`${String(total).padStart(9)} bytes in all, of ${MOST_BYTES} at most`);
writeFileSync(join(out, "licences.txt"), licences);
process.exit(total > MOST_BYTES ? 1 : 0);
