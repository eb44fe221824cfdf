// What every decoder needs, whatever it computes and commits. The descriptions, the defaults and the checks are the
// library's (surelock/decoding/settings.py): a plain form that comes here is whole and has been checked.

export class DecodeSettings {
  /** plain: all settings under their names. */
  constructor(plain) {
    Object.assign(this, plain);
  }

  get totalSteps() {
    return this.steps || this.gen_length;
  }

  /** The seed of one sequence of the batch, a BigInt. */
  seedOf(sequence) {
    return Array.isArray(this.seed) ? BigInt(this.seed[sequence]) : BigInt(this.seed) + BigInt(sequence);
  }
}
