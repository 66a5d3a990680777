"""Where jars come from; Maven is a script that records its calls, the real one is tried in the Hadoop tier."""

import os
import subprocess
import sys

import pytest

from themis.hadoop.errors import HadoopMissingError
from themis.hadoop.jars import DEFAULT_VERSION, JARS_VARIABLE, POM, cache_folder, jar_folder, java_program

MAVEN = """\
#!/bin/sh
echo "$@" >> "$CALLS"
for word in "$@"; do
  case "$word" in
    -DoutputDirectory=*) lib="${word#*=}" ;;
    -Dhadoop.version=*) version="${word#*=}" ;;
  esac
done
sleep "${MAVEN_TAKES_S:-0}"
mkdir -p "$lib"
: > "$lib/hadoop-common-$version.jar"
exit "${MAVEN_EXIT:-0}"
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty cache, and a PATH with a Java and a Maven that are scripts."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("java", "#!/bin/sh\n"), ("mvn", MAVEN)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for name in (JARS_VARIABLE, "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return tmp_path


def calls(place):
    return (place / "calls").read_text().splitlines() if (place / "calls").exists() else []


def test_jars_are_fetched_once(place):
    with pytest.raises(HadoopMissingError, match=r"jars are not there.*devcluster start"):
        jar_folder()
    folder = jar_folder(fetch=True)
    assert folder == place / "cache" / "themis" / f"hadoop-{DEFAULT_VERSION}" / "lib"
    assert [path.name for path in folder.iterdir()] == [f"hadoop-common-{DEFAULT_VERSION}.jar"]
    assert jar_folder() == jar_folder(fetch=True) == folder
    assert len(calls(place)) == 1
    assert jar_folder("3.5.0", fetch=True).parent.name == "hadoop-3.5.0"
    assert "-Dhadoop.version=3.5.0" in calls(place)[1]


def test_jars_of_another_pom_are_fetched_again(place):
    folder = jar_folder(fetch=True)
    (folder / "old.jar").touch()
    (folder.parent / POM.name).write_text("<project/>")
    with pytest.raises(HadoopMissingError):
        jar_folder()
    assert jar_folder(fetch=True) == folder
    assert not (folder / "old.jar").exists()
    assert len(calls(place)) == 2


def test_a_failed_fetch_leaves_no_files_and_shows_the_maven_error(place, monkeypatch):
    (place / "bin" / "mvn").write_text(MAVEN.replace("exit", "echo '[ERROR] no such host' >&2; exit"))
    monkeypatch.setenv("MAVEN_EXIT", "1")
    with pytest.raises(HadoopMissingError, match=r"(?s)Maven cannot fetch Hadoop 3.4.2.*no such host") as raised:
        jar_folder(fetch=True)
    assert raised.value.exit_code == 2
    assert [path.name for path in (place / "cache" / "themis").iterdir()] == [f"hadoop-{DEFAULT_VERSION}.lock"]


def test_two_at_once_fetch_once(place, monkeypatch):
    monkeypatch.setenv("MAVEN_TAKES_S", "0.5")
    code = "from themis.hadoop.jars import jar_folder; print(jar_folder(fetch=True))"
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    output = {process.communicate(timeout=30)[0] for process in both}
    assert output == {f"{cache_folder(DEFAULT_VERSION)}/lib\n"}
    assert len(calls(place)) == 1


@pytest.mark.parametrize(("program", "message"), [("mvn", "there is no `mvn`"), ("java", "there is no `java`")])
def test_missing_programs_for_fetching_are_named(place, monkeypatch, program, message):
    (place / "bin" / program).unlink()
    monkeypatch.setenv("PATH", str(place / "bin"))
    with pytest.raises(HadoopMissingError, match=rf"{message}.*install"):
        jar_folder(fetch=True)


def test_a_folder_that_the_environment_names_goes_first(place, monkeypatch):
    own = place / "own"
    own.mkdir()
    monkeypatch.setenv(JARS_VARIABLE, str(own))
    with pytest.raises(HadoopMissingError, match="not a folder with these jars"):
        jar_folder(fetch=True)
    (own / "hadoop-common-3.5.0.jar").touch()
    assert jar_folder() == jar_folder("3.5.0") == own
    with pytest.raises(HadoopMissingError, match=r"hadoop-common-3\.4\.2\.jar"):
        jar_folder("3.4.2", fetch=True)
    assert calls(place) == []


@pytest.mark.parametrize("version", ["", "3.4", "latest", "../../etc", "3.4.2 -X"])
def test_invalid_versions_are_refused(place, version):
    with pytest.raises(HadoopMissingError, match=r"no version of Hadoop.*3\.4\.2"):
        jar_folder(version, fetch=True)
    assert calls(place) == []


def test_java_is_that_of_java_home_or_the_real_one_on_the_path(place, monkeypatch):
    (place / "real").mkdir()
    (place / "bin" / "java").rename(place / "real" / "java")
    (place / "bin" / "java").symlink_to(place / "real" / "java")
    assert java_program() == place / "real" / "java"
    monkeypatch.setenv("JAVA_HOME", str(place))
    (place / "bin" / "java").chmod(0o755)
    assert java_program() == place / "bin" / "java"
    monkeypatch.setenv("JAVA_HOME", str(place / "cache"))
    with pytest.raises(HadoopMissingError, match="JAVA_HOME holds no Java"):
        java_program()


def test_the_pom_pins_every_version():
    text = POM.read_text()
    assert f"<hadoop.version>{DEFAULT_VERSION}</hadoop.version>" in text
    assert text.count("<artifactId>hadoop-") - 1 == text.count("<version>${hadoop.version}</version>") == 8
