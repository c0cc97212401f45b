import contexture from "./index.cjs";

export const {
  ArgumentError,
  ContextureError,
  EngineFailed,
  FormatError,
  Host,
  Session,
  SessionInUse,
  ToolError,
  Turn,
  checkEngine,
  countTokens,
  registerEngine,
  replay,
  safeCut,
} = contexture;
export default contexture;
