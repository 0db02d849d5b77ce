// The worker as the page sees it: calls that give promises, progress, cancelling, and a new worker for one that is lost.

export class Cancelled extends Error {
  constructor() {
    super("cancelled");
  }
}

interface Waiting {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

export class Client {
  /// Is told of what a user should know of the worker itself.
  status: (text: string) => void = () => {};
  progress: (done: number, all: number) => void = () => {};
  note: (text: string) => void = () => {};
  /// How often a worker was started.
  starts = 0;
  private worker: Worker | undefined;
  private waiting = new Map<number, Waiting>();
  private next = 0;

  constructor(private readonly url: URL) {}

  /// Another worker of the same kind.
  another(): Client {
    return new Client(this.url);
  }

  /// Calls a method of `worker.ts`.
  call<T>(method: string, ...args: unknown[]): Promise<T> {
    const worker = (this.worker ??= this.start());
    const id = this.next++;
    return new Promise<T>((resolve, reject) => {
      this.waiting.set(id, { resolve: resolve as (value: unknown) => void, reject });
      worker.postMessage({ id, method, args });
    });
  }

  /// Ends whatever runs. The next call starts a new worker, which has nothing open.
  cancel(): void {
    this.end(new Cancelled());
  }

  private start(): Worker {
    this.starts += 1;
    const worker = new Worker(this.url, { type: "module" });
    worker.onmessage = ({ data }) => {
      if (data.progress) return this.progress(data.progress[0], data.progress[1]);
      if (data.note !== undefined) return this.note(data.note);
      const waits = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      if (data.lost) {
        this.lost(data.error, waits);
      } else if (data.error !== undefined) {
        waits?.reject(new Error(data.error));
      } else {
        waits?.resolve(data.result);
      }
    };
    worker.onerror = (event) => this.lost(event.message || "the worker could not be started");
    return worker;
  }

  private lost(words: string, waits?: Waiting): void {
    this.status(`The worker stopped: ${words} A new one starts with the next step.`);
    const error = new Error(words);
    waits?.reject(error);
    this.end(error);
  }

  private end(error: Error): void {
    this.worker?.terminate();
    this.worker = undefined;
    for (const waits of this.waiting.values()) waits.reject(error);
    this.waiting.clear();
  }
}
