export interface ServerOptions {
  /** 0, or nothing, for a free one. */
  port?: number;
  /** Where it keeps its data; without one it has a folder that is removed when it stops, and saves nothing. */
  directory?: string;
  /** That clients must give. */
  password?: string;
  /** How long it may take to start; 30. */
  startupSeconds?: number;
  /** Parameters of `snug serve`. */
  parameters?: Record<string, string | number | boolean>;
}

/** The server did not start. The message has the end of its log. */
export class ServerError extends Error {}

/** A Snug server, a process of its own. */
export class Server {
  constructor(options?: ServerOptions);
  readonly host: string;
  readonly port: number;
  readonly pid: number | undefined;
  readonly running: boolean;
  /** Where it is, as clients take it. */
  readonly url: string;
  /** What it has logged since it was started. */
  readonly log: string;
  /** Starts it; resolves when it takes commands. */
  start(): Promise<this>;
  /** Ends it as SIGTERM does; kills it if that takes longer. */
  stop(seconds?: number): Promise<void>;
  /** Stops it and starts it again on the same port. */
  restart(): Promise<this>;
  /** Removes every key. */
  flush(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** The path of the snug program; SNUG_PROGRAM names another. */
export function program(): string;
