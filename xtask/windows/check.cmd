@echo off
rem Runs the tests of weir one after the other, and keeps what they say in results\.
setlocal
cd /d "%~dp0"
if not exist results mkdir results
set failed=0
set passed=0
rem What must run on Windows: a design of these that cannot is a failure.
rem WEIR_REQUIRE

echo weir on this machine > results\machine.txt
ver >> results\machine.txt
weir.exe --version >> results\machine.txt 2>&1
weir.exe doctor >> results\machine.txt 2>&1
weir.exe designs > results\designs.txt 2>&1

copy /y nul results\failed.tmp > nul
copy /y nul results\passed.tmp > nul
for %%t in (tests\*.exe) do call :one "%%t" "%%~nt"
if %passed%%failed%==00 (
    echo FAILED: there is no program in tests\ >> results\failed.tmp
    set failed=1
)
call :summary
del results\failed.tmp results\passed.tmp
if %failed%==0 (echo All passed.) else (echo %failed% programs failed.)
echo Please send back the folder "results".
exit /b %failed%

:one
echo %~2 ...
"%~1" > "results\%~2.txt" 2>&1
set code=%errorlevel%
rem A crash is a negative code, which "if errorlevel 1" takes for a good one.
if not %code%==0 (
    echo FAILED %~2, with %code% >> results\failed.tmp
    echo     FAILED: results\%~2.txt says how
    set /a failed+=1
) else (
    echo passed %~2 >> results\passed.tmp
    set /a passed+=1
)
call :summary
exit /b 0

rem What failed comes first. It is written after each program, so that it is there if this is ended.
:summary
echo %failed% failed, %passed% passed > results\summary.txt
type results\failed.tmp >> results\summary.txt
type results\passed.tmp >> results\summary.txt
exit /b 0
