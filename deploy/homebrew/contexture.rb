# A template: .github/workflows/release.yml replaces what stands between @ by the version and the checksums of the archives.
class Contexture < Formula
  desc "Host for context engines that keep long conversations in a model's window"
  homepage "https://github.com/contexture/contexture"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  on_macos do
    on_arm do
      url "https://github.com/contexture/contexture/releases/download/v@VERSION@/contexture-@VERSION@-aarch64-apple-darwin.tar.gz"
      sha256 "@aarch64-apple-darwin@"
    end
    on_intel do
      url "https://github.com/contexture/contexture/releases/download/v@VERSION@/contexture-@VERSION@-x86_64-apple-darwin.tar.gz"
      sha256 "@x86_64-apple-darwin@"
    end
  end

  on_linux do
    on_arm do
      url "https://github.com/contexture/contexture/releases/download/v@VERSION@/contexture-@VERSION@-aarch64-unknown-linux-gnu.tar.gz"
      sha256 "@aarch64-unknown-linux-gnu@"
    end
    on_intel do
      url "https://github.com/contexture/contexture/releases/download/v@VERSION@/contexture-@VERSION@-x86_64-unknown-linux-gnu.tar.gz"
      sha256 "@x86_64-unknown-linux-gnu@"
    end
  end

  def install
    bin.install "contexture", "contexture-engine-host"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/contexture.bash" => "contexture"
    zsh_completion.install "completions/_contexture"
    fish_completion.install "completions/contexture.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/contexture --version")
  end
end
