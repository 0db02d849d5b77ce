// The editor: CodeMirror with the assembler's words, and faults beside their lines.

import { autocompletion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { HighlightStyle, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, setDiagnostics } from "@codemirror/lint";
import { EditorState, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const TOKENS = ["pop_prev", "pop_next", "push_prev", "push_next"];
const LOOPS = ["uop_bgn", "uop_end", "iter_out", "iter_in", "dst_factor_out", "dst_factor_in", "src_factor_out", "src_factor_in"];
const MOVES = ["sram_base", "dram_base", "y_size", "x_size", "x_stride"];
const PADS = ["y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"];
const FLAGS = new Set([...TOKENS, "reset"]);

/// Mnemonics with the words that each takes. The machine's extensions have more, which are not proposed.
const WORDS: Record<string, string[]> = {
  gemm: [...TOKENS, "reset", ...LOOPS, "wgt_factor_out", "wgt_factor_in"],
  store: [...TOKENS, ...MOVES],
  finish: TOKENS,
};
for (const memory of ["uop", "inp", "wgt", "wgt4", "acc", "acc8"]) WORDS[`load.${memory}`] = [...TOKENS, ...MOVES, ...PADS];
for (const op of ["min", "max", "add", "shr", "mul", "shl"]) WORDS[`alu.${op}`] = [...TOKENS, "imm", ...LOOPS];
const DATA = [".inp", ".wgt", ".wgt4", ".acc", ".acc8", ".uop", ".out"];

const language = StreamLanguage.define<{ first: boolean }>({
  startState: () => ({ first: true }),
  token(stream, state) {
    if (stream.sol()) state.first = true;
    if (stream.eatSpace()) return null;
    if (stream.match(/^#.*/)) return "comment";
    if (state.first) {
      state.first = false;
      if (stream.match(/^\.\S+/)) return "meta";
      const word = (stream.match(/^[^\s#]+/) as RegExpMatchArray | null)?.[0] ?? "";
      return word in WORDS ? "keyword" : "invalid";
    }
    if (stream.match(/^[a-z_0-9]+(?==)/)) return "propertyName";
    if (stream.match(/^=/)) return "operator";
    if (stream.match(/^(0x[0-9a-fA-F]+|-?\d+)/)) return "number";
    const word = (stream.match(/^[a-z_]\w*/) as RegExpMatchArray | null)?.[0];
    if (word) return FLAGS.has(word) ? "atom" : null;
    stream.next();
    return null;
  },
});

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: tags.atom, color: "var(--code-token)", fontWeight: "600" },
  { tag: tags.meta, color: "var(--code-data)" },
  { tag: tags.propertyName, color: "var(--ink)" },
  { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
  { tag: tags.invalid, color: "var(--code-wrong)" },
]);

function complete(context: CompletionContext): CompletionResult | null {
  const line = context.state.doc.lineAt(context.pos);
  const before = line.text.slice(0, context.pos - line.from);
  const word = context.matchBefore(/[.\w]+/);
  if (before.includes("#") || (!word && !context.explicit)) return null;
  const from = word?.from ?? context.pos;
  const mnemonic = before.trimStart().split(/\s+/)[0] ?? "";
  if (before.slice(0, from - line.from).trim() === "") {
    const options = [...Object.keys(WORDS), ...DATA].map((label) => ({ label, type: "keyword" }));
    return { from, options };
  }
  const words = mnemonic === ".uop" ? ["dst", "src", "wgt"] : WORDS[mnemonic];
  if (!words) return null;
  const left = words.filter((name) => !new RegExp(`\\b${name}\\b`).test(before.slice(0, from - line.from)));
  const options = left.map((label) => (FLAGS.has(label) ? { label, type: "constant" } : { label, type: "property", apply: `${label}=` }));
  return { from, options };
}

const marks = StateEffect.define<{ line: number; kind: string }[]>();
const marked = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(set, transaction) {
    let next = set.map(transaction.changes);
    for (const effect of transaction.effects) {
      if (!effect.is(marks)) continue;
      const doc = transaction.state.doc;
      const inside = effect.value.filter(({ line }) => line >= 1 && line <= doc.lines);
      inside.sort((a, b) => a.line - b.line);
      next = Decoration.set(inside.map(({ line, kind }) => Decoration.line({ class: kind }).range(doc.line(line).from)));
    }
    return next;
  },
  provide: (field) => EditorView.decorations.from(field),
});

export interface Remark {
  line: number;
  words: string;
  severity: "error" | "warning";
}

/// The most text that is edited: more than any program that can be stepped needs.
export const MOST_TEXT = 1 << 18;

export class Editor {
  readonly view: EditorView;

  constructor(parent: HTMLElement, text: string, changed: (text: string) => void) {
    this.view = new EditorView({
      parent,
      state: EditorState.create({
        doc: text,
        extensions: [
          lineNumbers(),
          lintGutter(),
          history(),
          // Tab leaves the editor, for those who go by keyboard.
          keymap.of([...defaultKeymap, ...historyKeymap]),
          autocompletion({ override: [complete] }),
          language,
          syntaxHighlighting(colours),
          marked,
          EditorState.changeFilter.of((transaction) => transaction.newDoc.length <= MOST_TEXT),
          EditorView.contentAttributes.of({ "aria-label": "Program", tabindex: "0" }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) changed(update.state.doc.toString());
          }),
        ],
      }),
    });
  }

  get text(): string {
    return this.view.state.doc.toString();
  }

  set text(text: string) {
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
  }

  /// Faults under the text, replacing those before.
  remark(remarks: Remark[]): void {
    const doc = this.view.state.doc;
    const found: Diagnostic[] = remarks.map(({ line, words, severity }) => {
      const at = doc.line(Math.min(Math.max(line, 1), doc.lines));
      return { from: at.from, to: at.to, severity, message: words };
    });
    this.view.dispatch(setDiagnostics(this.view.state, found));
  }

  /// Lines of instructions that run or wait.
  mark(lines: { line: number; kind: string }[]): void {
    this.view.dispatch({ effects: marks.of(lines) });
  }
}
