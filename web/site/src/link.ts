// Programs and designs as links: JSON, deflated, in the fragment. `cli/src/playground.rs` writes the same.

/// The longest text that a link may unpack to.
const MOST_BYTES = 1 << 20;

function toBase64Url(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

function fromBase64Url(text: string): Uint8Array {
  const binary = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  return Uint8Array.from(binary, (c) => c.charCodeAt(0));
}

/// What stands behind `#/page/`.
export async function pack(value: unknown): Promise<string> {
  const bytes = new TextEncoder().encode(JSON.stringify(value));
  const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  return toBase64Url(new Uint8Array(await new Response(stream).arrayBuffer()));
}

/// The value of a link. An error says what is wrong with it.
export async function unpack(text: string): Promise<unknown> {
  let bytes: Uint8Array;
  try {
    bytes = fromBase64Url(text);
  } catch {
    throw new Error("the link is no base64url");
  }
  const stream = new Blob([bytes as BlobPart]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const reader = stream.getReader();
  const parts: BlobPart[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read().catch(() => {
      throw new Error("the link is damaged: it can't be unpacked");
    });
    if (done) break;
    size += value.length;
    if (size > MOST_BYTES) {
      void reader.cancel();
      throw new Error(`the link unpacks to more than ${MOST_BYTES} bytes`);
    }
    parts.push(value as BlobPart);
  }
  try {
    return JSON.parse(await new Blob(parts).text());
  } catch {
    throw new Error("the link is damaged: it holds no JSON");
  }
}
