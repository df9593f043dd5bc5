@echo off
rem Runs the tests of weir one after the other, and keeps what they say in results\.
setlocal
cd /d "%~dp0"
if not exist results mkdir results
rem What must run here: a design that cannot is a failure, not something that is left out.
set WEIR_REQUIRE=@REQUIRED@
set failed=0
type nul > results\failed.tmp
type nul > results\passed.tmp

echo weir on this machine > results\machine.txt
ver >> results\machine.txt
weir.exe --version >> results\machine.txt 2>&1
weir.exe doctor >> results\machine.txt 2>&1
weir.exe designs > results\designs.txt 2>&1

for %%t in (tests\*.exe) do call :one "%%t" "%%~nt"
echo %failed% programs failed > results\summary.txt
type results\failed.tmp >> results\summary.txt
type results\passed.tmp >> results\summary.txt
del results\failed.tmp results\passed.tmp
if %failed%==0 (echo All passed.) else (echo %failed% programs failed.)
echo Please send back the folder "results".
exit /b %failed%

:one
echo %~2 ...
"%~1" > "results\%~2.txt" 2>&1
rem Not "if errorlevel 1": a program that crashes ends with a negative number.
if %errorlevel%==0 goto passed
echo FAILED %~2 (it ended with %errorlevel%) >> results\failed.tmp
echo     FAILED: results\%~2.txt says how
set /a failed+=1
exit /b 0

:passed
echo passed %~2 >> results\passed.tmp
exit /b 0
